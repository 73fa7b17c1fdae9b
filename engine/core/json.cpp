// The document tree and the reader of one object's fields.
#include "engine/core/json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>

#include "engine/core/json_scan.h"

namespace tessera {

namespace {

// A number that is written as an integer must fit 64 bits; one with a fraction or an exponent must
// be finite as a double.
Json parse_number(const JsonScanner& scanner, const JsonToken& token, bool large_integers) {
  const char* begin = token.text.data();
  const char* end = begin + token.text.size();
  const auto whole = [&](auto value) -> std::optional<Json> {
    const auto [stop, status] = std::from_chars(begin, end, value);
    if (status != std::errc{} || stop != end) return std::nullopt;
    return Json(value);
  };
  if (token.text.find_first_of(".eE") == std::string_view::npos) {
    auto value = token.text.front() == '-' ? whole(std::int64_t{}) : whole(std::uint64_t{});
    if (value) return *std::move(value);
    if (!large_integers) {
      scanner.fail("E_JSON_NUMBER", token.offset, "an integer of at most 64 bits",
                   std::string(token.text.substr(0, 40)));
    }
  }
  // strtod, unlike from_chars, tells a number too small (rounds to zero) from one too large.
  const double value = std::strtod(std::string(token.text).c_str(), nullptr);
  if (!std::isfinite(value)) {
    scanner.fail("E_JSON_NUMBER", token.offset, "a number within the range of a double",
                 std::string(token.text.substr(0, 40)));
  }
  return Json(value);
}

// Builds the tree without recursion. Members are appended straight to the vector under an ordered
// object, because its own insertion looks at every earlier key.
class TreeBuilder {
 public:
  TreeBuilder(std::string_view text, const std::string& file, const JsonLimits& limits)
      : scanner_(text, file, limits), large_integers_(limits.large_integers) {}

  Json build() {
    try {
      return tree();
    } catch (const Error& error) {
      ErrorInfo info = error.info();
      if (const std::string path = key_path(); !path.empty()) info.where = path + ", " + info.where;
      throw Error(std::move(info));
    }
  }

 private:
  struct Level {
    Json* node;
    std::string name;  // its key; empty in an array
    std::unordered_set<std::string> keys;
  };

  Json tree() {
    Json root;
    for (JsonToken token = scanner_.next(); token.kind != JsonKind::kEnd; token = scanner_.next()) {
      if (token.kind == JsonKind::kObjectEnd || token.kind == JsonKind::kArrayEnd) {
        open_.pop_back();
      } else if (token.kind == JsonKind::kKey) {
        add_key(token);
      } else {
        add_value(token, root);
      }
    }
    return root;
  }

  // Of the value that is being read: "vision_config.hidden_size".
  std::string key_path() const {
    std::string out;
    for (const Level& level : open_) {
      if (!level.name.empty()) out += (out.empty() ? "" : ".") + level.name.substr(0, 100);
    }
    return key_.empty() ? out : out + (out.empty() ? "" : ".") + key_.substr(0, 100);
  }

  void add_key(const JsonToken& token) {
    key_ = std::string(token.text);
    if (!open_.back().keys.insert(key_).second) {
      scanner_.fail("E_JSON_DUPLICATE", token.offset, "each key once",
                    "\"" + key_.substr(0, 100) + "\" again");
    }
  }

  void add_value(const JsonToken& token, Json& root) {
    Json value = make(token);
    std::string name = std::exchange(key_, {});
    Json* slot = &root;
    if (open_.empty()) {
      root = std::move(value);
    } else if (Json& parent = *open_.back().node; parent.is_object()) {
      using Members = std::vector<Json::object_t::value_type>;
      auto& members = static_cast<Members&>(parent.get_ref<Json::object_t&>());
      members.emplace_back(name, std::move(value));
      slot = &members.back().second;
    } else {
      auto& elements = parent.get_ref<Json::array_t&>();
      elements.push_back(std::move(value));
      slot = &elements.back();
    }
    if (token.kind == JsonKind::kObjectBegin || token.kind == JsonKind::kArrayBegin) {
      open_.push_back({slot, std::move(name), {}});
    }
  }

  Json make(const JsonToken& token) {
    switch (token.kind) {
      case JsonKind::kObjectBegin:
        return Json::object();
      case JsonKind::kArrayBegin:
        return Json::array();
      case JsonKind::kString:
        return Json(std::string(token.text));
      case JsonKind::kNumber:
        return parse_number(scanner_, token, large_integers_);
      case JsonKind::kTrue:
        return Json(true);
      case JsonKind::kFalse:
        return Json(false);
      default:
        return Json(nullptr);
    }
  }

  JsonScanner scanner_;
  bool large_integers_;
  std::vector<Level> open_;
  std::string key_;
};

std::string describe(const Json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "an array";
  if (value.is_string()) return "\"" + value.get_ref<const std::string&>().substr(0, 100) + "\"";
  return value.dump();
}

std::string range_text(std::int64_t low, std::int64_t high) {
  return "an integer in " + std::to_string(low) + ".." + std::to_string(high);
}

std::string number_text(double value) {
  char buffer[32];
  const auto result = std::to_chars(buffer, buffer + sizeof buffer, value);
  return std::string(buffer, result.ptr);
}

std::optional<std::int64_t> integer_within(const Json& value, std::int64_t low, std::int64_t high) {
  if (!value.is_number_integer()) return std::nullopt;
  if (value.is_number_unsigned() && value.get<std::uint64_t>() > std::uint64_t{INT64_MAX}) {
    return std::nullopt;
  }
  const auto number = value.get<std::int64_t>();
  if (number < low || number > high) return std::nullopt;
  return number;
}

std::string join(const std::string& path, std::string_view key) {
  return path.empty() ? std::string(key) : path + "." + std::string(key);
}

}  // namespace

Json parse_json(std::string_view text, const std::string& file, const JsonLimits& limits) {
  return TreeBuilder(text, file, limits).build();
}

JsonReader::JsonReader(const Json& object, std::string file, std::string path, ErrorKind kind,
                       KeysRead* read)
    : object_(&object), file_(std::move(file)), path_(std::move(path)), kind_(kind), read_(read) {
  if (!object.is_object()) {
    throw Error({.kind = kind_,
                 .code = "E_JSON_TYPE",
                 .file = file_,
                 .where = path_.empty() ? "top level" : path_,
                 .expected = "an object",
                 .found = describe(object)});
  }
}

void JsonReader::fail(std::string_view key, const char* code, std::string expected,
                      std::string found) const {
  throw Error({.kind = kind_,
               .code = code,
               .file = file_,
               .where = join(path_, key),
               .expected = std::move(expected),
               .found = std::move(found)});
}

void JsonReader::fail(std::string_view key, std::string expected, std::string found) const {
  fail(key, "E_JSON_VALUE", std::move(expected), std::move(found));
}

std::string JsonReader::path_of(std::string_view key) const { return join(path_, key); }

const Json* JsonReader::look_up(std::string_view key) const {
  const auto found = object_->find(key);
  if (found == object_->end()) return nullptr;
  if (read_ != nullptr) read_->add(join(path_, key));
  return &*found;
}

bool JsonReader::has(std::string_view key) const {
  const Json* value = look_up(key);
  return value != nullptr && !value->is_null();
}

bool JsonReader::is_null(std::string_view key) const {
  const Json* value = look_up(key);
  return value != nullptr && value->is_null();
}

const Json& JsonReader::raw(std::string_view key) const {
  const Json* value = look_up(key);
  if (value == nullptr) fail(key, "E_JSON_MISSING", "this key", "nothing");
  return *value;
}

const Json& JsonReader::wanted(std::string_view key, const std::string& expected) const {
  const Json* value = look_up(key);
  if (value == nullptr) fail(key, "E_JSON_MISSING", expected, "no such key");
  return *value;
}

std::int64_t JsonReader::integer(std::string_view key, std::int64_t low, std::int64_t high) const {
  const Json& value = wanted(key, range_text(low, high));
  const auto number = integer_within(value, low, high);
  if (!number) {
    fail(key, value.is_number_integer() ? "E_JSON_RANGE" : "E_JSON_TYPE", range_text(low, high),
         describe(value));
  }
  return *number;
}

std::int64_t JsonReader::integer_or(std::string_view key, std::int64_t fallback, std::int64_t low,
                                    std::int64_t high) const {
  return has(key) ? integer(key, low, high) : fallback;
}

double JsonReader::number(std::string_view key, double low, double high) const {
  const std::string expected = "a number in " + number_text(low) + ".." + number_text(high);
  const Json& value = wanted(key, expected);
  if (!value.is_number()) fail(key, "E_JSON_TYPE", expected, describe(value));
  const double number = value.get<double>();
  if (!(number >= low && number <= high)) fail(key, "E_JSON_RANGE", expected, describe(value));
  return number;
}

double JsonReader::number_or(std::string_view key, double fallback, double low, double high) const {
  return has(key) ? number(key, low, high) : fallback;
}

bool JsonReader::boolean_or(std::string_view key, bool fallback) const {
  if (!has(key)) return fallback;
  const Json& value = raw(key);
  if (!value.is_boolean()) fail(key, "E_JSON_TYPE", "true or false", describe(value));
  return value.get<bool>();
}

std::string JsonReader::string(std::string_view key) const {
  const Json& value = wanted(key, "a string");
  if (!value.is_string()) fail(key, "E_JSON_TYPE", "a string", describe(value));
  return value.get<std::string>();
}

std::string JsonReader::string_or(std::string_view key, std::string fallback) const {
  return has(key) ? string(key) : std::move(fallback);
}

std::string JsonReader::choice(std::string_view key,
                               std::span<const std::string_view> choices) const {
  std::string known = "one of";
  for (const std::string_view choice : choices) known += " \"" + std::string(choice) + "\"";
  const Json& value = wanted(key, known);
  if (!value.is_string()) fail(key, "E_JSON_TYPE", known, describe(value));
  auto text = value.get<std::string>();
  if (std::find(choices.begin(), choices.end(), text) == choices.end()) {
    fail(key, "E_JSON_CHOICE", known, describe(value));
  }
  return text;
}

const Json& JsonReader::array(std::string_view key, std::size_t max_count) const {
  const Json& value = wanted(key, "an array");
  if (!value.is_array()) fail(key, "E_JSON_TYPE", "an array", describe(value));
  if (value.size() > max_count) {
    fail(key, "E_JSON_RANGE", "at most " + std::to_string(max_count) + " elements",
         std::to_string(value.size()));
  }
  return value;
}

std::vector<std::int64_t> JsonReader::integers(std::string_view key, std::int64_t low,
                                               std::int64_t high, std::size_t max_count) const {
  std::vector<std::int64_t> out;
  for (const Json& value : array(key, max_count)) {
    const auto number = integer_within(value, low, high);
    if (!number) {
      fail(std::string(key) + "[" + std::to_string(out.size()) + "]",
           value.is_number_integer() ? "E_JSON_RANGE" : "E_JSON_TYPE", range_text(low, high),
           describe(value));
    }
    out.push_back(*number);
  }
  return out;
}

std::vector<std::string> JsonReader::strings(std::string_view key, std::size_t max_count) const {
  std::vector<std::string> out;
  for (const Json& value : array(key, max_count)) {
    if (!value.is_string()) {
      fail(std::string(key) + "[" + std::to_string(out.size()) + "]", "E_JSON_TYPE", "a string",
           describe(value));
    }
    out.push_back(value.get<std::string>());
  }
  return out;
}

JsonReader JsonReader::object(std::string_view key) const {
  return JsonReader(wanted(key, "an object"), file_, join(path_, key), kind_, read_);
}

std::vector<JsonReader> JsonReader::objects(std::string_view key, std::size_t max_count) const {
  std::vector<JsonReader> out;
  for (const Json& value : array(key, max_count)) {
    out.emplace_back(value, file_, join(path_, key) + "[" + std::to_string(out.size()) + "]",
                     kind_, read_);
  }
  return out;
}

void JsonReader::only(std::span<const std::string_view> known) const {
  for (const auto& item : object_->items()) {
    if (std::find(known.begin(), known.end(), item.key()) != known.end()) continue;
    std::string names;
    for (const std::string_view name : known)
      names += (names.empty() ? "" : ", ") + std::string(name);
    fail(item.key(), "E_JSON_UNKNOWN", "one of the keys " + names, "an unknown key");
  }
}

}  // namespace tessera
