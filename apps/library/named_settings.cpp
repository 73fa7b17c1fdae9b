#include "apps/library/named_settings.h"

#include <algorithm>

#include "apps/library/guard.h"
#include "apps/library/tasks.h"
#include "engine/core/index.h"

namespace tessera {

namespace {

using Place = api::SettingPlace;

[[noreturn]] void refuse_value(std::string name, std::string expected, std::string found) {
  throw Error({.kind = ErrorKind::kUsage,
               .code = "E_SETTING_VALUE",
               .where = std::move(name),
               .expected = std::move(expected),
               .found = std::move(found)});
}

[[noreturn]] void refuse_name(const std::string& name, api::Task task, Place place) {
  std::string names, hint;
  for (const Setting* row : rows_at(task, place)) {
    names += (names.empty() ? "one of " : ", ") + std::string(row->name);
  }
  const Place other = place == Place::kOpen ? Place::kRequest : Place::kOpen;
  for (const Setting* row : rows_at(task, other)) {
    if (row->name != name) continue;
    hint = place == Place::kOpen ? "it is a setting of requests" : "it is given to Runtime::open()";
  }
  throw Error({.kind = ErrorKind::kUsage,
               .code = "E_SETTING_NAME",
               .where = "settings",
               .expected = names.empty() ? "no settings here" : names,
               .found = "'" + name + "'",
               .hint = hint});
}

api::SettingInfo info_of(const SettingGroup& group, const Setting& row, Place place) {
  static constexpr const char* kKinds[] = {"number", "integer", "switch", "name",
                                           "name",   "text",    "ids",    "biases"};
  api::SettingInfo out;
  out.name = row.name;
  out.group = group.title;
  out.of = group.of;
  out.kind = nth(kKinds, row.kind);
  out.low = row.low;
  out.high = row.high;
  out.zero_is_off = row.zero_is_off;
  if (row.choices != nullptr) out.choices.assign(row.choices().begin(), row.choices().end());
  out.unit = row.unit;
  out.help = row.help;
  const bool own = row.fallback || !row.text_fallback.empty();
  out.without = own ? setting_text(row, fallback_of(row)) : std::string(row.otherwise);
  out.place = place;
  out.changes_bytes = row.changes_bytes;
  return out;
}

}  // namespace

GroupRows with_door(const SettingGroup& group, Door door) {
  GroupRows out{&group, {}};
  for (const Setting* row : group.rows) {
    if (row->doors.has(door)) out.rows.push_back(row);
  }
  return out;
}

std::vector<const Setting*> rows_at(api::Task task, Place place) {
  std::vector<const Setting*> out;
  for (const GroupRows& group : task_row(task).settings(place)) {
    out.insert(out.end(), group.rows.begin(), group.rows.end());
  }
  return out;
}

SettingValues read_settings(const api::Settings& given, api::Task task, Place place) {
  const std::vector<const Setting*> rows = rows_at(task, place);
  SettingValues out;
  for (const api::Setting& one : given) {
    const auto row = std::find_if(rows.begin(), rows.end(), [&](const Setting* candidate) {
      return candidate->name == one.name ||
             (!candidate->alias.empty() && candidate->alias == one.name);
    });
    if (row == rows.end()) refuse_name(one.name, task, place);
    const std::optional<SettingValue> value = parse_setting(**row, one.value.text());
    if (!value) refuse_value(one.name, expected_of(**row), "'" + one.value.text() + "'");
    out.set(**row, *value);
  }
  return out;
}

void check_number(const Setting& row, const char* name, double value) {
  if (!in_range(row, value)) refuse_value(name, expected_of(row), plain_number(value));
}

}  // namespace tessera

namespace tessera_v0 {

std::vector<SettingInfo> setting_table(Task task) {
  return tessera::guarded([&] {
    std::vector<SettingInfo> out;
    for (const SettingPlace place : {SettingPlace::kOpen, SettingPlace::kRequest}) {
      for (const tessera::GroupRows& group : tessera::task_row(task).settings(place)) {
        for (const tessera::Setting* row : group.rows) {
          out.push_back(tessera::info_of(*group.group, *row, place));
        }
      }
    }
    return out;
  });
}

}  // namespace tessera_v0
