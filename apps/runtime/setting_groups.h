// Every table of settings in one list, and the reference tables of docs/cli.md made from it.
#pragma once

#include <span>
#include <string>

#include "engine/core/setting.h"

namespace tessera {

// Sampling, decoding with its parts, texts, describing, sizes, videos, output.
std::span<const SettingGroup> setting_groups();

// "generate", "batch", …, "field", "viewer", "record".
std::string door_names(const Setting& row);
// All that is known of a row.
Json setting_facts(const SettingGroup& group, const Setting& row);

// What stands between the marks in docs/cli.md.
std::string settings_markdown();
inline constexpr std::string_view kSettingsBegin = "<!-- settings: made by tessera settings -->\n";
inline constexpr std::string_view kSettingsEnd = "<!-- settings: end -->\n";

}  // namespace tessera
