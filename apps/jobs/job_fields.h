// The fields of a job's item by name: ranges, values from text, and the checks that all forms of a
// job file share.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "apps/jobs/job_list.h"

namespace tessera {

enum class FieldType : std::uint8_t { kId, kText, kInteger, kNumber };

struct JobField {
  std::string_view name;  // the long flag
  FieldType type;
  // The member; the one that belongs to the type.
  std::optional<std::string> JobItem::*text = nullptr;
  std::optional<std::int64_t> JobItem::*integer = nullptr;
  std::optional<double> JobItem::*number = nullptr;
  double low = 0, high = 0;
  std::span<const std::string_view> choices = {};  // of a text; empty = any
  bool of_clips = false;                           // says nothing about a picture
};

// "id", "prompt", "negative-prompt", "seed", the settings of the law, then "kind" and what clips
// alone have.
std::span<const JobField> job_fields();
// nullptr for an unknown name. '_' stands for '-'.
const JobField* find_job_field(std::string_view name);
// What find_job_field() knows, for messages.
std::string job_field_names();

// What is wrong with a value of a field; empty `expected` = nothing.
struct FieldProblem {
  const char* code = "";
  std::string expected, found;
  std::size_t offset = 0;  // of the wrong byte within the value
};
// Sets the field of the item from its text; numbers as JSON or CSV write them.
FieldProblem set_job_field(JobItem& item, const JobField& field, std::string_view text);

}  // namespace tessera
