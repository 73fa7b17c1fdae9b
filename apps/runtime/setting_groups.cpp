#include "apps/runtime/setting_groups.h"

#include <nlohmann/json.hpp>

#include "apps/runtime/caption_settings.h"
#include "apps/runtime/output_settings.h"
#include "engine/core/index.h"
#include "engine/decoding/decode_settings.h"
#include "engine/sampling/sampling_settings.h"

namespace tessera {

namespace {

struct DoorName {
  Door door;
  std::string_view name;
  char letter;  // in the tables
};
constexpr DoorName kDoors[] = {{Door::kGenerate, "generate", 'G'}, {Door::kVideo, "video", 'V'},
                               {Door::kBatch, "batch", 'B'},       {Door::kCaption, "caption", 'C'},
                               {Door::kEval, "eval", 'E'},         {Door::kBench, "bench", 'N'},
                               {Door::kField, "job field", 'J'},   {Door::kViewer, "viewer", 'W'}};

std::string value_text(const Setting& row) {
  if (row.kind == SettingKind::kSwitch) return "switch";
  if (row.kind == SettingKind::kText) return "text";
  if (row.kind == SettingKind::kIds) return row.high == 1 ? "ids" : "sequences of ids";
  if (row.kind == SettingKind::kBiases) return "ids:number";
  if (row.is_text()) {
    std::string out;
    for (const std::string_view choice : row.choices()) {
      out += (out.empty() ? "" : ", ") + std::string(choice);
    }
    return out;
  }
  const std::string unit = row.unit.empty() ? "" : " " + std::string(row.unit);
  const std::string limit = row.limit == ModelLimit::kCodes       ? ", at most the model's codes"
                            : row.limit == ModelLimit::kRowTokens ? ", at most a row's tokens"
                                                                  : "";
  return range_text(row) + unit + limit;
}

std::string default_text(const Setting& row) {
  if (row.fallback || !row.text_fallback.empty()) return setting_text(row, fallback_of(row));
  return std::string(row.otherwise);
}

std::string letters(const Setting& row) {
  std::string out;
  for (const DoorName& door : kDoors) {
    if (row.doors.has(door.door)) out += door.letter;
  }
  return out;
}

std::string title_of(const SettingGroup& group) {
  if (group.chosen_by == nullptr) return std::string(group.title);
  const std::string by = "`--" + std::string(group.chosen_by->name);
  return std::string(group.title) + ": " +
         (group.of.empty() ? by + "`" : by + " " + std::string(group.of) + "`");
}

}  // namespace

std::span<const SettingGroup> setting_groups() {
  static const auto groups = [] {
    std::vector<SettingGroup> out{sampling_group()};
    out.insert(out.end(), decode_groups().begin(), decode_groups().end());
    out.push_back(text_decode_group());
    out.push_back(caption_group());
    out.insert(out.end(), output_groups().begin(), output_groups().end());
    return out;
  }();
  return groups;
}

std::string door_names(const Setting& row) {
  std::string out;
  for (const DoorName& door : kDoors) {
    if (row.doors.has(door.door)) out += (out.empty() ? "" : ", ") + std::string(door.name);
  }
  return out;
}

Json setting_facts(const SettingGroup& group, const Setting& row) {
  static constexpr std::string_view kKinds[] = {"number", "integer", "switch", "choice",
                                                "name",   "text",    "ids",    "biases"};
  Json out = {{"setting", row.name},
              {"group", group.title},
              {"kind", nth(kKinds, row.kind)},
              {"help", row.help}};
  if (!group.of.empty()) out["of"] = group.of;
  if (row.kind == SettingKind::kNumber || row.kind == SettingKind::kInteger) {
    out["min"] = setting_json(row, {row.low});
    out["max"] = setting_json(row, {row.high});
    if (row.zero_is_off) out["zero"] = "off";
  }
  if (row.choices != nullptr)
    out["choices"] = std::vector<std::string_view>(row.choices().begin(), row.choices().end());
  if (!row.unit.empty()) out["unit"] = row.unit;
  out["default"] = row.fallback ? setting_json(row, fallback_of(row)) : Json(default_text(row));
  out["where"] = door_names(row);
  out["changes_bytes"] = row.changes_bytes;
  if (!row.record.empty()) out["record"] = row.record;
  if (!row.alias.empty()) out["alias"] = row.alias;
  return out;
}

std::string settings_markdown() {
  std::string out =
      "Where: G `generate`, V `video`, B `batch`, C `caption`, E `eval`, N `bench`, J a field of a "
      "job's item,\nW the viewer's window. Record: the key in what an image or a video says of its "
      "making. Settings marked * change\nno byte of what is written.\n";
  for (const SettingGroup& group : setting_groups()) {
    out += "\n**" + title_of(group) + "**\n\n| setting | values | default | where | record |\n" +
           "|---|---|---|---|---|\n";
    std::string help;
    for (const Setting* row : group.rows) {
      const bool flag = row->doors.has(Door::kField) || !letters(*row).empty();
      const std::string name = (flag ? "`--" : "`") + std::string(row->name) + "`";
      out += "| " + name + (row->changes_bytes ? "" : " *") + " | " + value_text(*row) + " | " +
             default_text(*row) + " | " + letters(*row) + " | " +
             (row->record.empty() ? "" : "`" + std::string(row->record) + "`") + " |\n";
      help += "- " + name + ": " + std::string(row->help) + "\n";
    }
    out += "\n" + help;
  }
  return out;
}

}  // namespace tessera
