// Settings by name, read against the rows of a task.
#pragma once

#include <span>
#include <vector>

#include <tessera/settings.h>

#include "engine/core/setting.h"

namespace tessera {

// Rows of a group that are taken.
struct GroupRows {
  const SettingGroup* group;
  std::vector<const Setting*> rows;
};
GroupRows with_door(const SettingGroup& group, Door door);

// What a task takes at a place.
std::vector<const Setting*> rows_at(tessera_v0::Task task, tessera_v0::SettingPlace place);

// Error kUsage: E_SETTING_NAME for a name that the task does not take there, naming those that it
// does; E_SETTING_VALUE with the row's range.
SettingValues read_settings(const tessera_v0::Settings& given, tessera_v0::Task task,
                            tessera_v0::SettingPlace place);

// Of a number that has a row, but no place in the settings.
void check_number(const Setting& row, const char* name, double value);

}  // namespace tessera
