#include "engine/families/gguf_keys.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>

namespace tessera {

namespace {

// Keys that no reader of a model asks for, by their whole names.
struct OtherKey {
  std::string_view key;
  KeyUse use;
  std::string_view why;
};
constexpr std::string_view kDescribes = "describes the file", kLicence = "general.license";
constexpr std::array kOtherKeys = {
    OtherKey{"general.architecture", KeyUse::kUsed, ""},
    OtherKey{"general.alignment", KeyUse::kUsed, ""},
    OtherKey{kLicence, KeyUse::kUsed, ""},
    OtherKey{"general.file_type", KeyUse::kWithoutEffect, "each tensor has its type"},
    OtherKey{"general.quantization_version", KeyUse::kWithoutEffect, "there is one"},
    OtherKey{"general.sampling.*", KeyUse::kNotFollowed, "texts are greedy unless flags say else"},
    OtherKey{"general.*", KeyUse::kWithoutEffect, kDescribes},
    OtherKey{"split.*", KeyUse::kUsed, ""},
    OtherKey{"quantize.*", KeyUse::kWithoutEffect, kDescribes},
    OtherKey{"imatrix.*", KeyUse::kWithoutEffect, kDescribes},
};

bool fits(std::string_view row, std::string_view key) {
  if (!row.ends_with('*')) return row == key;
  return key.starts_with(row.substr(0, row.size() - 1));
}

}  // namespace

void GgufKeyReader::fail(std::string_view key, std::string expected, std::string found) const {
  throw Error({.kind = ErrorKind::kModel,
               .code = code_,
               .file = file_,
               .where = "key \"" + name_of(key) + "\"",
               .expected = std::move(expected),
               .found = std::move(found)});
}

const GgufValue* GgufKeyReader::find(std::string_view key) {
  return head_.find(*read_.insert(name_of(key)).first);
}

std::optional<std::int64_t> GgufKeyReader::integer(std::string_view key, std::int64_t low,
                                                   std::int64_t high) {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  const std::optional<std::int64_t> found = value->integer();
  if (found && *found >= low && *found <= high) return found;
  const std::string range =
      "a whole number from " + std::to_string(low) + " to " + std::to_string(high);
  if (found) fail(key, range, std::to_string(*found));
  const bool list = value->kind() == GgufKind::kArray;
  fail(key, range + (list ? ", the same for all layers" : ""),
       std::string(gguf_kind_name(value->kind())));
}

std::int64_t GgufKeyReader::wanted(std::string_view key, std::int64_t low, std::int64_t high) {
  const std::optional<std::int64_t> found = integer(key, low, high);
  if (!found) {
    fail(key, "a whole number from " + std::to_string(low) + " to " + std::to_string(high),
         "no such key");
  }
  return *found;
}

std::optional<double> GgufKeyReader::number(std::string_view key, double low, double high) {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  const std::optional<double> found = value->number();
  if (found && *found >= low && *found <= high) return found;
  fail(key, "a number from " + Json(low).dump() + " to " + Json(high).dump(),
       found ? Json(*found).dump() : std::string(gguf_kind_name(value->kind())));
}

double GgufKeyReader::wanted_number(std::string_view key, double low, double high) {
  const std::optional<double> found = number(key, low, high);
  if (!found) fail(key, "a number", "no such key");
  return *found;
}

std::optional<bool> GgufKeyReader::boolean(std::string_view key) {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->boolean()) fail(key, "true or false", std::string(gguf_kind_name(value->kind())));
  return value->boolean();
}

std::optional<std::string> GgufKeyReader::text(std::string_view key) {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->text()) fail(key, "a text", std::string(gguf_kind_name(value->kind())));
  return std::string(*value->text());
}

std::optional<GgufArray> GgufKeyReader::elements(std::string_view key, const char* expected,
                                                 std::size_t max_count, bool wanted) {
  const GgufValue* value = find(key);
  if (value == nullptr) {
    if (wanted) fail(key, expected, "no such key");
    return std::nullopt;
  }
  const std::optional<GgufArray> array = value->array();
  if (!array) fail(key, expected, std::string(gguf_kind_name(value->kind())));
  if (array->left() > max_count) {
    fail(key, "at most " + std::to_string(max_count) + " elements", std::to_string(array->left()));
  }
  return array;
}

void GgufKeyReader::fail_element(std::string_view key, const char* expected,
                                 const GgufValue& element) const {
  fail(key, expected, "another kind or value: " + std::string(gguf_kind_name(element.kind())));
}

std::optional<std::vector<std::int64_t>> GgufKeyReader::integers(std::string_view key,
                                                                 std::int64_t low,
                                                                 std::int64_t high,
                                                                 std::size_t max_count) {
  if (!has(key)) return std::nullopt;
  const std::string expected =
      "a list of whole numbers from " + std::to_string(low) + " to " + std::to_string(high);
  std::vector<std::int64_t> out;
  list(key, expected.c_str(), max_count, true, [&](const GgufValue& element) {
    const std::optional<std::int64_t> number = element.integer();
    if (number) out.push_back(*number);
    return number && *number >= low && *number <= high;
  });
  return out;
}

std::optional<std::vector<double>> GgufKeyReader::numbers(std::string_view key,
                                                          std::size_t max_count) {
  if (!has(key)) return std::nullopt;
  std::vector<double> out;
  list(key, "a list of numbers", max_count, true, [&](const GgufValue& element) {
    if (element.number()) out.push_back(*element.number());
    return element.number().has_value();
  });
  return out;
}

void GgufKeyReader::account(std::span<const IdleGgufKey> idle, FolderAccount& out) const {
  const std::string place = std::filesystem::path(file_).filename().string();
  const std::string prefix = prefix_ + ".";
  for (const auto& [name, value] : head_.keys) {
    if (!name.starts_with(prefix)) continue;
    KeyAccount& row = out.keys.emplace_back(KeyAccount{place, name, KeyUse::kUnknown, {}});
    if (read_.contains(name)) {
      row.use = KeyUse::kUsed;
      continue;
    }
    const std::string_view key = std::string_view(name).substr(prefix.size());
    const auto known = std::find_if(idle.begin(), idle.end(),
                                    [&](const IdleGgufKey& one) { return fits(one.key, key); });
    if (known == idle.end()) continue;
    row.use = KeyUse::kWithoutEffect;
    row.why = known->why;
  }
}

void GgufKeyReader::check_all(std::span<const IdleGgufKey> idle) const {
  FolderAccount rows;
  account(idle, rows);
  for (const KeyAccount& row : rows.keys) {
    if (row.use != KeyUse::kUnknown) continue;
    fail(std::string_view(row.key).substr(prefix_.size() + 1),
         "keys that are known to change nothing or are followed", "this key");
  }
}

std::string gguf_licence(const GgufFile& head) {
  const GgufValue* const value = head.find(kLicence);
  return value != nullptr && value->text() ? std::string(*value->text()) : "as its card says";
}

void account_other_keys(const GgufFile& head, std::span<const std::string_view> read_prefixes,
                        const std::string& file, FolderAccount& out) {
  const std::string place = std::filesystem::path(file).filename().string();
  for (const auto& [name, value] : head.keys) {
    const std::string_view prefix = std::string_view(name).substr(0, name.find('.'));
    if (std::find(read_prefixes.begin(), read_prefixes.end(), prefix) != read_prefixes.end()) {
      continue;
    }
    const auto row = std::find_if(kOtherKeys.begin(), kOtherKeys.end(),
                                  [&key = name](const OtherKey& one) { return fits(one.key, key); });
    const bool known = row != kOtherKeys.end();
    out.keys.push_back(
        {place, name, known ? row->use : KeyUse::kUnknown, known ? row->why : std::string_view()});
  }
}

}  // namespace tessera
