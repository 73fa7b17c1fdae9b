// The table of fields. Settings are those of the tables that flags are made from.
#include "apps/jobs/job_fields.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "apps/captions/line_reader.h"
#include "engine/core/index.h"
#include "engine/core/utf8.h"
#include "engine/sampling/sampling_settings.h"

namespace tessera {

namespace {

constexpr std::string_view kKinds[] = {kImageKind, kVideoKind};
constexpr std::string_view kOldKinds[] = {kOldImageKind};

inline constexpr Setting kSeedField{
    .name = "seed", .kind = SettingKind::kInteger, .low = 0, .high = to_double(kMaxJobSeed)};

constexpr JobField field_of(const Setting& row) {
  const bool integer = row.kind == SettingKind::kInteger;
  return {.name = row.name,
          .type = row.is_text() ? FieldType::kText
                                : (integer ? FieldType::kInteger : FieldType::kNumber),
          .setting = &row,
          .choices = row.choices != nullptr ? row.choices() : std::span<const std::string_view>()};
}

JobField video_field(const Setting& row, std::optional<std::int64_t> JobItem::*member) {
  JobField out = field_of(row);
  out.integer = member;
  out.of_videos = true;
  return out;
}

std::vector<JobField> all_fields() {
  std::vector<JobField> out = {
      {.name = "id", .type = FieldType::kId},
      {.name = "prompt", .type = FieldType::kText},
      {.name = "negative-prompt", .type = FieldType::kText, .text = &JobItem::negative_prompt}};
  out.push_back(field_of(kSeedField));
  out.back().integer = &JobItem::seed;
  for (const Setting* row : sampling_group().rows) {
    if (row->doors.has(Door::kField)) out.push_back(field_of(*row));
  }
  out.push_back({.name = "kind",
                 .type = FieldType::kText,
                 .text = &JobItem::kind,
                 .choices = kKinds,
                 .old_choices = kOldKinds});
  out.push_back(video_field(setting::kFrames, &JobItem::frames));
  out.push_back(video_field(setting::kFps, &JobItem::fps));
  out.push_back(video_field(setting::kContainer, nullptr));
  out.back().text = &JobItem::container;
  out.push_back({.name = "first-frames",
                 .type = FieldType::kText,
                 .text = &JobItem::first_frames,
                 .of_videos = true});
  out.push_back({.name = "first-frames-sha256",
                 .type = FieldType::kText,
                 .text = &JobItem::first_frames_sha256,
                 .of_videos = true});
  return out;
}

std::string shown(std::string_view text) { return "\"" + std::string(text.substr(0, 130)) + "\""; }

FieldProblem check_text(const JobField& field, std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    if (!c.valid) return {"E_JOB_TEXT", "UTF-8", "a byte that is not", at};
    if (c.code == 0) return {"E_JOB_TEXT", "text without NUL", "NUL", at};
    at += c.length;
  }
  const std::string name(field.name);
  if (text.size() > kMaxJobPromptBytes) {
    return {"E_JOB_FIELD", "a " + name + " of at most 65536 bytes", std::to_string(text.size()), 0};
  }
  if (text.empty()) return {"E_JOB_FIELD", "a " + name + " that says something", "none", 0};
  const auto& choices = field.choices;
  const auto is_one_of = [&](std::span<const std::string_view> names) {
    return std::find(names.begin(), names.end(), text) != names.end();
  };
  if (choices.empty() || is_one_of(choices) || is_one_of(field.old_choices)) return {};
  std::string known;
  for (const std::string_view choice : choices) {
    known += known.empty() ? "" : ", ";
    known += choice;
  }
  return {"E_JOB_FIELD", name + " as one of " + known, shown(text), 0};
}

}  // namespace

std::span<const JobField> job_fields() {
  static const std::vector<JobField> fields = all_fields();
  return fields;
}

const JobField* find_job_field(std::string_view name) {
  std::string flag(name.substr(0, 40));
  for (char& c : flag) c = c == '_' ? '-' : c;
  for (const JobField& field : job_fields()) {
    if (field.name == flag && name.size() == flag.size()) return &field;
  }
  return nullptr;
}

std::string job_field_names() {
  std::string out;
  for (const JobField& field : job_fields()) {
    out += out.empty() ? "" : ", ";
    out += field.name;
  }
  return out;
}

FieldProblem set_job_field(JobItem& item, const JobField& field, std::string_view text) {
  if (field.type == FieldType::kId) {
    item.id = text;
    if (is_item_id(text)) return {};
    return {"E_JOB_ID", kItemIdRule, shown(text), 0};
  }
  if (field.type == FieldType::kText && (field.setting == nullptr || field.text != nullptr)) {
    if (field.text != nullptr) {
      item.*field.text = std::string(text);
    } else {
      item.prompt = text;
    }
    return check_text(field, text);
  }
  const std::optional<SettingValue> value = parse_setting(*field.setting, text);
  if (!value) {
    const std::string name(field.name);
    return {"E_JOB_FIELD", name + " as " + expected_of(*field.setting), shown(text), 0};
  }
  if (field.integer != nullptr) {
    item.*field.integer = truncate<std::int64_t>(value->number);
  } else {
    item.settings.set(*field.setting, *value);
  }
  return {};
}

bool is_given(const JobItem& item, const JobField& field) {
  if (field.text != nullptr) return (item.*field.text).has_value();
  if (field.integer != nullptr) return (item.*field.integer).has_value();
  return field.setting == nullptr || item.settings.has(*field.setting);
}

void fill_job_field(JobItem& item, const JobField& field, const JobItem& others) {
  if (is_given(item, field) || !is_given(others, field)) return;
  if (field.text != nullptr) {
    item.*field.text = others.*field.text;
  } else if (field.integer != nullptr) {
    item.*field.integer = others.*field.integer;
  } else {
    item.settings.set(*field.setting, others.settings.get(*field.setting));
  }
}

bool same_job_field(const JobItem& a, const JobItem& b, const JobField& field) {
  if (field.text != nullptr) return a.*field.text == b.*field.text;
  if (field.integer != nullptr) return a.*field.integer == b.*field.integer;
  if (field.setting == nullptr) return true;
  const SettingValue *in_a = a.settings.find(*field.setting),
                     *in_b = b.settings.find(*field.setting);
  return in_a == nullptr || in_b == nullptr ? in_a == in_b : *in_a == *in_b;
}

Json job_field_json(const JobItem& item, const JobField& field) {
  if (field.text != nullptr) return (item.*field.text).value();
  if (field.integer != nullptr) return (item.*field.integer).value();
  return setting_json(*field.setting, item.settings.get(*field.setting));
}

}  // namespace tessera
