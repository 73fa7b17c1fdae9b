// The fields of a job's item by name: ranges, values from text, and the checks that all forms of a
// job file share.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "apps/jobs/job_list.h"
#include "engine/core/json.h"

namespace tessera {

enum class FieldType : std::uint8_t { kId, kText, kInteger, kNumber };

struct JobField {
  std::string_view name;  // the long flag
  FieldType type;
  // The member that belongs to the type, if it has one.
  std::optional<std::string> JobItem::*text = nullptr;
  std::optional<std::int64_t> JobItem::*integer = nullptr;
  // Its range; without a member the value stands in JobItem::settings.
  const Setting* setting = nullptr;
  std::span<const std::string_view> choices = {};  // of a text; empty = any
  std::span<const std::string_view> old_choices = {};  // accepted, not shown
  bool of_videos = false;                           // says nothing about an image
};

// "id", "prompt", "negative-prompt", "seed", the sampling settings, then "kind" and what videos
// alone have.
std::span<const JobField> job_fields();
// nullptr for an unknown name. '_' stands for '-'.
const JobField* find_job_field(std::string_view name);
// What find_job_field() knows, for messages.
std::string job_field_names();

// Whether the item says something here; id and prompt it always does.
bool is_given(const JobItem& item, const JobField& field);
// Takes what the item does not say from another one.
void fill_job_field(JobItem& item, const JobField& field, const JobItem& others);
bool same_job_field(const JobItem& a, const JobItem& b, const JobField& field);
// Of a field that is given and neither id nor prompt.
Json job_field_json(const JobItem& item, const JobField& field);

// What is wrong with a value of a field; empty `expected` = nothing.
struct FieldProblem {
  const char* code = "";
  std::string expected, found;
  std::size_t offset = 0;  // of the wrong byte within the value
};
// Sets the field of the item from its text; numbers as JSON or CSV write them.
FieldProblem set_job_field(JobItem& item, const JobField& field, std::string_view text);

}  // namespace tessera
