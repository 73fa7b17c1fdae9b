// Settings by name, as the flags of the `tessera` program are called without their dashes:
//
//   Settings settings = {{"temp", 0.9}, {"top-k", 200}, {"decode", "gumbel"}};
//
// A name that a task does not know, and a value out of range, is Error kUsage (E_SETTING_NAME,
// E_SETTING_VALUE) where the settings are used: by Runtime::open(), plan() or submit().
#pragma once

#include <charconv>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <vector>

namespace tessera_v0 {

// What a model is opened for.
enum class Task : int { kImage, kVideo, kDescribe, kComplete, kAnswer };

// A number, a switch or a name, kept as text.
class SettingValue {
 public:
  SettingValue(std::string text) : text_(std::move(text)) {}  // NOLINT: a value
  SettingValue(std::string_view text) : text_(text) {}        // NOLINT
  SettingValue(const char* text) : text_(text) {}             // NOLINT
  SettingValue(bool on) : text_(on ? "true" : "false") {}     // NOLINT
  template <typename Number>
  requires(std::is_arithmetic_v<Number> && !std::is_same_v<Number, bool>)
      SettingValue(Number number) {  // NOLINT
    char buffer[64];
    const auto [end, status] = std::to_chars(buffer, buffer + sizeof buffer, number);
    if (status == std::errc{}) text_.assign(buffer, end);
  }

  const std::string& text() const { return text_; }

 private:
  std::string text_ = {};
};

struct Setting {
  std::string name = {};
  SettingValue value;
};

// The last value of a name counts.
using Settings = std::vector<Setting>;

// Where a setting is given.
enum class SettingPlace : int {
  kOpen,     // OpenOptions::settings: holds for all requests to that model
  kRequest,  // settings of a request
};

// All that is known of a setting.
struct SettingInfo {
  std::string name = {};
  std::string group = {};                 // "Sampling"; settings of a part of a method name it
  std::string of = {};                    // that part, else empty
  std::string kind = {};                  // "number", "integer", "switch", "name" or "text"
  double low = 0, high = 0;               // of numbers and integers
  bool zero_is_off = false;               // 0 is taken as well
  std::vector<std::string> choices = {};  // of names
  std::string unit = {}, help = {};
  std::string without = {};  // the value, or what holds, where it is not given
  SettingPlace place = SettingPlace::kRequest;
  bool changes_bytes = true;  // false: what is written stays the same
};

// The settings that a task takes, in the order of the program's help.
[[gnu::visibility("default")]] std::vector<SettingInfo> setting_table(Task task);

}  // namespace tessera_v0
