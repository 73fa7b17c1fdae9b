// Flags shared by sub-commands, with one meaning per name, and the order in which a value is found:
// command line, then environment (TESSERA_SHEET_COUNT for --sheet-count), then config file, then the model's
// own preset. A value that cannot be read or is out of range is Error kUsage naming flag and range.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace tessera {

struct Session;

// A flag with a checked value. An optional target stays empty when the flag is given nowhere.
CLI::Option* integer_flag(CLI::App& app, const std::string& names, std::int64_t& target,
                          std::int64_t low, std::int64_t high, const std::string& help);
CLI::Option* integer_flag(CLI::App& app, const std::string& names,
                          std::optional<std::int64_t>& target, std::int64_t low, std::int64_t high,
                          const std::string& help);
CLI::Option* number_flag(CLI::App& app, const std::string& names, std::optional<double>& target,
                         double low, double high, const std::string& help);
CLI::Option* text_flag(CLI::App& app, const std::string& names, std::string& target,
                       const std::string& help);
CLI::Option* text_flag(CLI::App& app, const std::string& names, std::optional<std::string>& target,
                       const std::string& help);
CLI::Option* choice_flag(CLI::App& app, const std::string& names, std::string& target,
                         const std::vector<std::string>& choices, const std::string& help,
                         const std::vector<std::string>& old_choices = {});  // accepted, not shown

// --json, --progress, -v, --color, --config: every sub-command has them.
void add_common_flags(CLI::App& app, Session& session);

struct DeviceFlags {
  std::string device = "auto";
  std::int64_t threads = 0;    // 0 = one per core
  std::string dtype = "auto";  // auto or a name of storage_named(): how weights are stored
  bool deterministic = false, tf32 = false;
};
void add_device_flags(CLI::App& app, DeviceFlags& flags);

// -W, -H and --size WxH, pixels. settle_size() turns --size into the other two; Error kUsage when
// it is malformed or contradicts them.
struct SizeFlags {
  std::optional<std::int64_t> width, height;
  std::optional<std::string> size;
};
void add_size_flags(CLI::App& app, SizeFlags& flags);
void settle_size(SizeFlags& flags);

// Fills every flag of `command` that the command line left open, from the environment and from the
// config file (--config, TESSERA_CONFIG, or tessera/config.toml in the user's config folder). Keys
// outside a section hold for every sub-command that has the flag; [generate] for that one alone.
// Sections named in `elsewhere` are another program's and are passed over.
void settle_flags(CLI::App& root, CLI::App& command,
                  std::span<const std::string_view> elsewhere = {});

// "TESSERA_SHEET_COUNT" for "sheet-count".
std::string environment_name(const std::string& long_name);

}  // namespace tessera
