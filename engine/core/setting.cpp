#include "engine/core/setting.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "engine/core/index.h"

namespace tessera {

namespace {

constexpr std::string_view kOn = "true", kOff = "false";

std::string choices_text(const Setting& row) {
  std::string out;
  for (const std::string_view choice : row.choices()) {
    out += out.empty() ? "" : ", ";
    out += choice;
  }
  return out;
}

bool before(const SettingValues::Entry& entry, std::string_view name) {
  return entry.first->name < name;
}

}  // namespace

std::string plain_number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.12g", value);
  return text;
}

std::string range_text(const Setting& row, std::optional<double> high) {
  const double most = high ? std::min(row.high, *high) : row.high;
  return (row.zero_is_off ? "0, or " : "") + plain_number(row.low) + " to " + plain_number(most);
}

std::string expected_of(const Setting& row) {
  switch (row.kind) {
    case SettingKind::kNumber:
    case SettingKind::kInteger: {
      const char* what = row.kind == SettingKind::kInteger ? "an integer" : "a number";
      return (row.zero_is_off ? "0, or " : "") + std::string(what) + " from " +
             plain_number(row.low) + " to " + plain_number(row.high);
    }
    case SettingKind::kSwitch:
      return "true or false";
    case SettingKind::kChoice:
    case SettingKind::kName:
      return "one of " + choices_text(row);
    case SettingKind::kIds:
      return row.high == 1 ? "token ids parted by commas"
                           : "token ids, those of a sequence parted by spaces, sequences by commas";
    case SettingKind::kBiases:
      return "sequences of token ids, each with a number after a colon: 5:2.5,6 7:-1";
    case SettingKind::kText:
      break;
  }
  return "a text";
}

bool in_range(const Setting& row, double value, std::optional<double> high) {
  if (row.kind == SettingKind::kSwitch) return value == 0 || value == 1;
  if (row.kind == SettingKind::kInteger && value != std::floor(value)) return false;
  if (row.zero_is_off && value == 0) return true;
  return value >= row.low && value <= (high ? std::min(row.high, *high) : row.high);
}

double clamped(const Setting& row, double value) {
  if (row.zero_is_off && value == 0) return value;
  return std::clamp(std::isnan(value) ? row.low : value, row.low, row.high);
}

std::optional<SettingValue> parse_setting(const Setting& row, std::string_view text) {
  const char* end = text.data() + text.size();
  switch (row.kind) {
    case SettingKind::kInteger: {
      std::int64_t value = 0;
      const auto [rest, status] = std::from_chars(text.data(), end, value);
      const auto number = to_double(value);
      if (status != std::errc{} || rest != end || !in_range(row, number)) return std::nullopt;
      return SettingValue{number};
    }
    case SettingKind::kNumber: {
      double value = 0;
      const auto [rest, status] = std::from_chars(text.data(), end, value);
      const bool whole = status == std::errc{} && rest == end && std::isfinite(value);
      if (!whole || !in_range(row, value)) return std::nullopt;
      return SettingValue{value};
    }
    case SettingKind::kSwitch:
      if (text != kOn && text != kOff) return std::nullopt;
      return SettingValue{text == kOn ? 1.0 : 0.0};
    case SettingKind::kChoice:
      if (std::ranges::find(row.choices(), text) == row.choices().end()) return std::nullopt;
      break;
    case SettingKind::kIds:
      if (!parse_ids(row, text)) return std::nullopt;
      break;
    case SettingKind::kBiases:
      if (!parse_biases(row, text)) return std::nullopt;
      break;
    case SettingKind::kName:
    case SettingKind::kText:
      break;
  }
  return SettingValue{0, std::string(text)};
}

std::optional<IdLists> parse_ids(const Setting& row, std::string_view text) {
  constexpr std::int32_t kMaxId = (1 << 30) - 1;
  constexpr std::size_t kMaxSequences = std::size_t{1} << 17;  // all ids of a vocabulary, and more
  IdLists out;
  const auto most = truncate<std::size_t>(row.high);
  while (!text.empty()) {
    const std::size_t comma = text.find(',');
    std::string_view sequence = text.substr(0, comma);
    if (out.size() == kMaxSequences) return std::nullopt;
    std::vector<std::int32_t>& ids = out.emplace_back();
    while (!sequence.empty()) {
      if (sequence.front() == ' ') {
        sequence.remove_prefix(1);
        continue;
      }
      std::int32_t id = -1;
      const char* const end = sequence.data() + sequence.size();
      const auto [rest, status] = std::from_chars(sequence.data(), end, id);
      const bool whole = rest == end || *rest == ' ';
      if (status != std::errc{} || !whole || id < 0 || id > kMaxId || ids.size() == most) {
        return std::nullopt;
      }
      ids.push_back(id);
      sequence.remove_prefix(to_size(rest - sequence.data()));
    }
    if (ids.empty()) return std::nullopt;
    if (comma == text.npos) return out;
    text.remove_prefix(comma + 1);
    if (text.empty()) return std::nullopt;
  }
  return out;
}

std::string ids_text(const IdLists& lists) {
  std::string out;
  for (const std::vector<std::int32_t>& ids : lists) {
    out += out.empty() ? "" : ",";
    for (std::size_t i = 0; i < ids.size(); ++i) {
      out += (i == 0 ? "" : " ") + std::to_string(ids[i]);
    }
  }
  return out;
}

std::optional<BiasedIds> parse_biases(const Setting& row, std::string_view text) {
  BiasedIds out;
  std::string ids;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    const std::string_view one = text.substr(0, comma);
    const std::size_t colon = one.find(':');
    if (colon == one.npos || comma + 1 == text.size()) return std::nullopt;
    double bias = 0;
    const char* const end = one.data() + one.size();
    const auto [rest, status] = std::from_chars(one.data() + colon + 1, end, bias);
    if (status != std::errc{} || rest != end || !(std::abs(bias) <= kMaxBias)) return std::nullopt;
    out.biases.push_back(bias);
    ids += (ids.empty() ? "" : ",") + std::string(one.substr(0, colon));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  std::optional<IdLists> lists = parse_ids(row, ids);
  if (!lists || lists->size() != out.biases.size()) return std::nullopt;
  out.ids = *lists;
  std::sort(lists->begin(), lists->end());
  if (std::adjacent_find(lists->begin(), lists->end()) != lists->end()) return std::nullopt;
  return out;
}

std::string biases_text(const BiasedIds& lists) {
  std::string out;
  for (std::size_t i = 0; i < lists.ids.size(); ++i) {
    char number[32];
    const auto end = std::to_chars(number, number + sizeof number, lists.biases[i]).ptr;
    out += (i == 0 ? "" : ",") + ids_text({lists.ids[i]}) + ":" + std::string(number, end);
  }
  return out;
}

std::string setting_text(const Setting& row, const SettingValue& value) {
  if (row.is_text()) return value.text;
  if (row.kind == SettingKind::kSwitch) return std::string(value.number != 0 ? kOn : kOff);
  if (row.kind == SettingKind::kInteger) {
    return std::to_string(static_cast<std::int64_t>(value.number));
  }
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value.number);
  return {buffer, end.ptr};
}

SettingValue fallback_of(const Setting& row) {
  return {row.fallback.value_or(0), std::string(row.text_fallback)};
}

const SettingValue* SettingValues::find(const Setting& row) const {
  const auto at = std::lower_bound(entries_.begin(), entries_.end(), row.name, before);
  return at != entries_.end() && at->first->name == row.name ? &at->second : nullptr;
}

SettingValue SettingValues::get(const Setting& row) const {
  const SettingValue* value = find(row);
  return value != nullptr ? *value : fallback_of(row);
}

void SettingValues::set(const Setting& row, SettingValue value) {
  const auto at = std::lower_bound(entries_.begin(), entries_.end(), row.name, before);
  if (at != entries_.end() && at->first->name == row.name) {
    at->second = std::move(value);
  } else {
    entries_.insert(at, {&row, std::move(value)});
  }
}

void SettingValues::settle(const Setting& row, SettingValue value) {
  if (value == fallback_of(row)) return clear(row);
  set(row, std::move(value));
}

void SettingValues::clear(const Setting& row) {
  std::erase_if(entries_, [&](const Entry& entry) { return entry.first->name == row.name; });
}

void SettingValues::fill(const SettingValues& others) {
  for (const auto& [row, value] : others.entries_) {
    if (!has(*row)) set(*row, value);
  }
}

bool SettingValues::operator==(const SettingValues& other) const {
  return std::ranges::equal(entries_, other.entries_, [](const Entry& a, const Entry& b) {
    return a.first->name == b.first->name && a.second == b.second;
  });
}

std::pair<std::string_view, std::string_view> record_place(const Setting& row) {
  const std::size_t dot = row.record.find('.');
  if (dot == std::string_view::npos) return {"", row.record};
  return {row.record.substr(0, dot), row.record.substr(dot + 1)};
}

Json setting_json(const Setting& row, const SettingValue& value) {
  if (row.is_text()) return value.text;
  if (row.kind == SettingKind::kSwitch) return value.number != 0;
  if (row.kind == SettingKind::kInteger) return static_cast<std::int64_t>(value.number);
  return value.number;
}

void write_setting(Json& object, const Setting& row, const SettingValue& value) {
  const auto [place, key] = record_place(row);
  Json& to = place.empty() ? object : object[std::string(place)];
  to[std::string(key)] = setting_json(row, value);
}

SettingValue read_setting(const JsonReader& reader, const Setting& row) {
  const std::string_view key = record_place(row).second;
  if (row.is_text()) {
    SettingValue out{0, reader.string(key)};
    const bool checked = row.kind == SettingKind::kIds || row.kind == SettingKind::kBiases ||
                         row.kind == SettingKind::kChoice;
    if (checked && !parse_setting(row, out.text)) {
      reader.fail(key, expected_of(row), out.text);
    }
    return out;
  }
  if (row.kind == SettingKind::kSwitch) return {reader.boolean_or(key, false) ? 1.0 : 0.0};
  const double low = row.zero_is_off ? 0 : row.low;
  SettingValue out;
  if (row.kind == SettingKind::kInteger) {
    out.number = to_double(
        reader.integer(key, truncate<std::int64_t>(low), truncate<std::int64_t>(row.high)));
  } else {
    out.number = reader.number(key, low, row.high);
  }
  if (!in_range(row, out.number)) reader.fail(key, expected_of(row), plain_number(out.number));
  return out;
}

}  // namespace tessera
