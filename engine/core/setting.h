// Settings as data. A row says all that is known of one setting: its flag, its range, its help,
// where it may be given and what it is called in a record. Flags, job fields, records, the viewer's
// controls and the tables of docs/cli.md are made from rows. Values are kept by row.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "engine/core/index.h"
#include "engine/core/json.h"

namespace tessera {

enum class SettingKind : std::uint8_t {
  kNumber,
  kInteger,  // below 2^53
  kSwitch,
  kChoice,  // one of choices()
  kName,    // the same; the table that knows the names refuses others
  kText,
  kIds,  // sequences of token ids, of `high` ids at most: "5,6 7" is one of one id and one of two
  kBiases,  // the same, a number with each: "5:2.5,6 7:-1"
};

// Where a setting can be given, and where it is written down.
enum class Door : std::uint16_t {
  kGenerate = 1 << 0,
  kVideo = 1 << 1,
  kBatch = 1 << 2,
  kCaption = 1 << 3,
  kEval = 1 << 4,
  kBench = 1 << 5,
  kField = 1 << 6,   // of a job's item
  kViewer = 1 << 7,  // a control
  kRecord = 1 << 8,  // of what was generated
};
class Doors {
 public:
  constexpr Doors() = default;
  constexpr Doors(Door door) : bits_(static_cast<std::uint16_t>(door)) {}  // NOLINT: one door
  constexpr bool has(Door door) const { return (bits_ & static_cast<std::uint16_t>(door)) != 0; }
  friend constexpr Doors operator|(Doors a, Doors b) {
    Doors out;
    out.bits_ = narrow<std::uint16_t>(a.bits_ | b.bits_);
    return out;
  }

 private:
  std::uint16_t bits_ = 0;
};
constexpr Doors operator|(Door a, Door b) { return Doors(a) | Doors(b); }

// An upper bound that only the model knows, next to the row's own.
enum class ModelLimit : std::uint8_t { kNone, kCodes, kRowTokens };

struct Setting {
  std::string_view name;  // the long flag, without its dashes
  SettingKind kind = SettingKind::kNumber;
  std::string_view help;  // one line; needs no more than the name of its group in front
  double low = 0, high = 0;
  bool zero_is_off = false;  // 0 is taken as well
  ModelLimit limit = ModelLimit::kNone;
  std::string_view unit = {};
  std::optional<double> fallback = {};  // empty: as `otherwise` says
  std::string_view text_fallback = {};
  std::string_view otherwise = "the model's own";  // what holds without a value or a fallback
  std::span<const std::string_view> (*choices)() = nullptr;
  Doors doors = {};
  bool changes_bytes = true;
  std::string_view record = {};  // its key; "tree.width" stands in the object "tree"
  bool late = false;             // records from before it lack it
  bool refused_unused = false;   // given next to a method that does not read it
  std::string_view word = {};    // what people call it, for labels and reports; empty = name
  double start = 0, step = 0;    // of the viewer's control: the value when switched on
  // Of a part that changes the distribution: the value at which it does not, whatever the others
  // say.
  std::optional<double> lossless = {};
  std::string_view alias = {};  // another spelling of the flag, not shown

  constexpr std::string_view shown_word() const { return word.empty() ? name : word; }
  constexpr bool is_text() const { return kind >= SettingKind::kChoice; }
};

// Rows that belong together. Those of a part of a method: `chosen_by` is the row that names the
// part, `of` the name; empty where several parts share the rows.
struct SettingGroup {
  std::string_view title;
  std::string_view of = {};
  const Setting* chosen_by = nullptr;
  std::span<const Setting* const> rows;
};

// A number, a whole number or 0 and 1; or a text.
struct SettingValue {
  double number = 0;
  std::string text = {};
  bool operator==(const SettingValue&) const = default;
};

std::string plain_number(double value);
// "0 to 100", "0, or 1 to 1000000". `high` may be a tighter bound of the model.
std::string range_text(const Setting& row, std::optional<double> high = {});
// "an integer from 1 to 64", "one of f32, bf16".
std::string expected_of(const Setting& row);
// False for NaN, and for fractions of integers.
bool in_range(const Setting& row, double value, std::optional<double> high = {});
// The nearest value in range.
double clamped(const Setting& row, double value);
// Empty where the text is no value of the row: expected_of() says what is.
std::optional<SettingValue> parse_setting(const Setting& row, std::string_view text);
std::string setting_text(const Setting& row, const SettingValue& value);
SettingValue fallback_of(const Setting& row);

// Sequences of token ids.
using IdLists = std::vector<std::vector<std::int32_t>>;
// Ids parted by spaces, sequences by commas; an empty text has none. Empty where the text is no
// value of the row.
std::optional<IdLists> parse_ids(const Setting& row, std::string_view text);
std::string ids_text(const IdLists& lists);
// Sequences of token ids, no two alike, and a number each, within +-kMaxBias.
struct BiasedIds {
  IdLists ids;
  std::vector<double> biases;
};
inline constexpr double kMaxBias = 1e9;
std::optional<BiasedIds> parse_biases(const Setting& row, std::string_view text);
std::string biases_text(const BiasedIds& lists);

// What was given, by row.
class SettingValues {
 public:
  using Entry = std::pair<const Setting*, SettingValue>;

  bool has(const Setting& row) const { return find(row) != nullptr; }
  const SettingValue* find(const Setting& row) const;  // null = not given
  // What was given, else the row's own value.
  SettingValue get(const Setting& row) const;
  double number(const Setting& row) const { return get(row).number; }
  std::int64_t integer(const Setting& row) const { return truncate<std::int64_t>(get(row).number); }
  std::string text(const Setting& row) const { return get(row).text; }

  void set(const Setting& row, SettingValue value);
  void set(const Setting& row, double number) { set(row, SettingValue{number}); }
  void set(const Setting& row, std::string text) { set(row, SettingValue{0, std::move(text)}); }
  // The same, but a row's own value is as if it were not given.
  void settle(const Setting& row, SettingValue value);
  void settle(const Setting& row, double number) { settle(row, SettingValue{number}); }
  void clear(const Setting& row);
  // Takes what is not given from `others`.
  void fill(const SettingValues& others);

  bool empty() const { return entries_.empty(); }
  std::span<const Entry> entries() const { return entries_; }  // by name
  bool operator==(const SettingValues& other) const;

 private:
  std::vector<Entry> entries_;
};

// Into the object, or into one within it, as the row's key says.
void write_setting(Json& object, const Setting& row, const SettingValue& value);
Json setting_json(const Setting& row, const SettingValue& value);
// Reads the last part of the row's key. Error as JsonReader's: a wrong type, out of range, missing.
SettingValue read_setting(const JsonReader& reader, const Setting& row);
// "tree" and "width" for "tree.width"; "" and "window" for "window".
std::pair<std::string_view, std::string_view> record_place(const Setting& row);

// A row and the member of a struct that has its value; texts where Struct::kTextSettings is there.
template <typename Struct>
struct BoundSetting {
  using Numbers = std::variant<double Struct::*, std::int64_t Struct::*, bool Struct::*>;
  using All =
      std::variant<double Struct::*, std::int64_t Struct::*, bool Struct::*, std::string Struct::*>;
  const Setting* row;
  std::conditional_t < requires { Struct::kTextSettings; }
  , All, Numbers > member;
};

template <typename Struct>
SettingValue value_of(const Struct& from, const BoundSetting<Struct>& bound) {
  return std::visit(
      [&](auto member) -> SettingValue {
        if constexpr (requires { (from.*member).size(); }) {
          return {0, from.*member};
        } else {
          return {static_cast<double>(from.*member)};
        }
      },
      bound.member);
}

template <typename Struct>
void assign(Struct& to, const BoundSetting<Struct>& bound, const SettingValue& value) {
  std::visit(
      [&](auto member) {
        using Value = std::remove_reference_t<decltype(to.*member)>;
        if constexpr (requires { (to.*member).size(); }) {
          to.*member = value.text;
        } else {
          to.*member = static_cast<Value>(value.number);
        }
      },
      bound.member);
}

// Struct::rows() are its rows. What is not given keeps the struct's own value.
template <typename Struct>
Struct settings_from(const SettingValues& values) {
  Struct out;
  for (const BoundSetting<Struct>& bound : Struct::rows()) {
    if (const SettingValue* value = values.find(*bound.row)) assign(out, bound, *value);
  }
  return out;
}

// All rows of the struct into the object.
template <typename Struct>
void write_settings(Json& object, const Struct& from) {
  for (const BoundSetting<Struct>& bound : Struct::rows()) {
    write_setting(object, *bound.row, value_of(from, bound));
  }
}

// The rows alone, for tables.
template <typename Struct>
std::span<const Setting* const> rows_of() {
  static const auto rows = [] {
    std::vector<const Setting*> out;
    for (const BoundSetting<Struct>& bound : Struct::rows()) out.push_back(bound.row);
    return out;
  }();
  return rows;
}

}  // namespace tessera
