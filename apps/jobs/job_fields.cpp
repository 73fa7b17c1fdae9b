// The table of fields. Ranges are those of the flags.
#include "apps/jobs/job_fields.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "apps/captions/line_reader.h"
#include "apps/pipeline/facts.h"
#include "engine/core/fault.h"
#include "engine/core/utf8.h"

namespace tessera {

namespace {

constexpr JobField number_field(std::string_view name, std::optional<double> JobItem::*member,
                                double low, double high) {
  return {.name = name, .type = FieldType::kNumber, .number = member, .low = low, .high = high};
}

constexpr std::string_view kKinds[] = {kPictureKind, kVideoKind};
constexpr std::string_view kContainers[] = {"mkv", "mp4", "webm", "webp", "gif"};

constexpr std::array<JobField, 16> kFields = {{
    {.name = "id", .type = FieldType::kId},
    {.name = "prompt", .type = FieldType::kText},
    {.name = "negative-prompt", .type = FieldType::kText, .text = &JobItem::negative_prompt},
    {.name = "seed",
     .type = FieldType::kInteger,
     .integer = &JobItem::seed,
     .high = static_cast<double>(kMaxJobSeed)},
    number_field("temp", &JobItem::temperature, 0, kMaxTemperature),
    {.name = "top-k", .type = FieldType::kInteger, .integer = &JobItem::top_k, .high = kMaxTopK},
    number_field("top-p", &JobItem::top_p, kMinMass, 1),
    number_field("min-p", &JobItem::min_p, 0, 1),
    number_field("typical", &JobItem::typical, kMinMass, 1),
    number_field("cfg-scale", &JobItem::guidance, 1, kMaxGuidance),
    {.name = "kind", .type = FieldType::kText, .text = &JobItem::kind, .choices = kKinds},
    {.name = "frames",
     .type = FieldType::kInteger,
     .integer = &JobItem::frames,
     .low = 1,
     .high = static_cast<double>(kMaxClipFrames),
     .of_clips = true},
    {.name = "fps",
     .type = FieldType::kInteger,
     .integer = &JobItem::fps,
     .low = 1,
     .high = static_cast<double>(kMaxClipRate),
     .of_clips = true},
    {.name = "container",
     .type = FieldType::kText,
     .text = &JobItem::container,
     .choices = kContainers,
     .of_clips = true},
    {.name = "first-frames",
     .type = FieldType::kText,
     .text = &JobItem::first_frames,
     .of_clips = true},
    {.name = "first-frames-sha256",
     .type = FieldType::kText,
     .text = &JobItem::first_frames_sha256,
     .of_clips = true},
}};

std::string shortest(double value) {
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value);
  return {buffer, end.ptr};
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
  if (choices.empty() || std::find(choices.begin(), choices.end(), text) != choices.end()) {
    return {};
  }
  std::string known;
  for (const std::string_view choice : choices) {
    known += known.empty() ? "" : ", ";
    known += choice;
  }
  return {"E_JOB_FIELD", name + " as one of " + known, shown(text), 0};
}

template <typename Value>
FieldProblem read_number(const JobField& field, std::string_view text, Value& value) {
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = status == std::errc{} && end == text.data() + text.size();
  const auto real = static_cast<double>(value);
  const double slack = plant("job_range") ? 1 : 0;
  if (whole && std::isfinite(real) && real >= field.low - slack && real <= field.high) return {};
  const bool integer = field.type == FieldType::kInteger;
  const auto bound = [&](double limit) {
    return integer ? std::to_string(static_cast<std::int64_t>(limit)) : shortest(limit);
  };
  return {"E_JOB_FIELD",
          std::string(field.name) + (integer ? " as an integer from " : " as a number from ") +
              bound(field.low) + " to " + bound(field.high),
          shown(text), 0};
}

}  // namespace

std::span<const JobField> job_fields() { return kFields; }

const JobField* find_job_field(std::string_view name) {
  std::string flag(name.substr(0, 40));
  for (char& c : flag) c = c == '_' ? '-' : c;
  for (const JobField& field : kFields) {
    if (field.name == flag && name.size() == flag.size()) return &field;
  }
  return nullptr;
}

std::string job_field_names() {
  std::string out;
  for (const JobField& field : kFields) {
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
  if (field.type == FieldType::kText) {
    if (field.text != nullptr) {
      item.*field.text = std::string(text);
    } else {
      item.prompt = text;
    }
    return check_text(field, text);
  }
  if (field.type == FieldType::kInteger) {
    return read_number(field, text, (item.*field.integer).emplace(0));
  }
  return read_number(field, text, (item.*field.number).emplace(0));
}

}  // namespace tessera
