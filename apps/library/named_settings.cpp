#include "apps/library/named_settings.h"

#include <algorithm>

#include "apps/library/guard.h"
#include "apps/runtime/caption_settings.h"
#include "apps/runtime/output_settings.h"
#include "engine/core/index.h"
#include "engine/decoding/decode_settings.h"
#include "engine/sampling/sampling_settings.h"

namespace tessera {

namespace {

using Place = api::SettingPlace;

struct GroupRows {
  const SettingGroup* group;
  std::vector<const Setting*> rows;
};

GroupRows with_door(const SettingGroup& group, Door door) {
  GroupRows out{&group, {}};
  for (const Setting* row : group.rows) {
    if (row->doors.has(door)) out.rows.push_back(row);
  }
  return out;
}

std::vector<GroupRows> method_rows(Door door) {
  std::vector<GroupRows> out;
  for (const SettingGroup& group : decode_groups()) out.push_back(with_door(group, door));
  return out;
}

// Of "Size" and "Video".
const SettingGroup& output_group(std::string_view title) {
  for (const SettingGroup& group : output_groups()) {
    if (group.title == title) return group;
  }
  expects(false, "a group of output settings by this title");
  return output_groups().front();
}

std::vector<GroupRows> groups_at(api::Task task, Place place) {
  const bool open = place == Place::kOpen;
  switch (task) {
    case api::Task::kImage: {
      if (!open) return {with_door(sampling_group(), Door::kGenerate)};
      std::vector<GroupRows> out = method_rows(Door::kGenerate);
      out.push_back(with_door(output_group("Size"), Door::kGenerate));
      return out;
    }
    case api::Task::kVideo:
      if (open) return method_rows(Door::kVideo);
      return {with_door(sampling_group(), Door::kVideo),
              {&output_group("Video"), {&setting::kFrames, &setting::kContinue}}};
    case api::Task::kDescribe:
      if (!open) return {};
      return {with_door(sampling_group(), Door::kCaption),
              with_door(text_decode_group(), Door::kCaption),
              with_door(decode_groups().front(), Door::kCaption),
              {&caption_group(), {&setting::kMaxTokens, &setting::kPruneRate}}};
  }
  return {};
}

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

std::vector<const Setting*> rows_at(api::Task task, Place place) {
  std::vector<const Setting*> out;
  for (const GroupRows& group : groups_at(task, place)) {
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
      for (const tessera::GroupRows& group : tessera::groups_at(task, place)) {
        for (const tessera::Setting* row : group.rows) {
          out.push_back(tessera::info_of(*group.group, *row, place));
        }
      }
    }
    return out;
  });
}

}  // namespace tessera_v0
