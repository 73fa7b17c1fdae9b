// Flags made from rows of settings: name, range, help and hidden spellings come from the table.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/core/setting.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace tessera {

// What one command says otherwise of a row.
struct FlagText {
  std::string_view short_name = {};  // "-W"
  std::string_view group = {};       // empty = the options of the command
  std::string_view help = {};        // empty = the row's
  std::string_view bare = {};        // the value of a flag without one; others follow a '='
};

// A flag whose value goes to `values` (set only where the flag is given).
CLI::Option* setting_flag(CLI::App& app, const Setting& row, SettingValues& values,
                          const FlagText& text = {});
// A flag with a target of its own. An optional one stays empty when the flag is given nowhere.
CLI::Option* setting_flag(CLI::App& app, const Setting& row, std::int64_t& target,
                          const FlagText& text = {});
CLI::Option* setting_flag(CLI::App& app, const Setting& row, std::optional<std::int64_t>& target,
                          const FlagText& text = {});
CLI::Option* setting_flag(CLI::App& app, const Setting& row, std::optional<double>& target,
                          const FlagText& text = {});
CLI::Option* setting_flag(CLI::App& app, const Setting& row, std::string& target,
                          const FlagText& text = {});
// Numbers of the row's range, parted by commas.
CLI::Option* setting_list_flag(CLI::App& app, const std::string& names, const Setting& row,
                               std::vector<double>& target, const FlagText& text = {});

// Every row of the group that has this door.
void add_setting_flags(CLI::App& app, const SettingGroup& group, Door door, SettingValues& values,
                       std::string_view title = {});

// All spellings, as CLI11 takes them; the hidden ones are left out by hide_aliases().
std::string flag_names(const Setting& row, std::string_view short_name = {});
// Help that does not show hidden spellings.
void hide_aliases(CLI::App& app);

}  // namespace tessera
