// What a job asks of its model, before weights are read: prompts encoded, the largest batch, and
// what tells this model from another one.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "apps/jobs/settle.h"
#include "apps/runtime/generate_task.h"
#include "engine/core/json.h"

namespace tessera {

// An error of one item as an error of the job file: kUsage, at the item's line.
ErrorInfo error_at_item(ErrorInfo info, const JobItem& item, const std::string& file);

// What the task will be asked for this item.
GenerateRequest request_of(const SettledItem& item);

struct JobCheck {
  std::vector<ErrorInfo> errors;       // at most kMaxJobErrors, with file and line
  std::vector<PreparedRequest> worst;  // a batch as large as any of this job
};
// Encodes every prompt, before weights are read: too long for the model, no class of it, a negative
// prompt where there is none.
JobCheck check_items(const GenerateTask& task, std::span<const SettledItem> items,
                     std::int64_t batch_size, const std::string& file);

// What makes the images of a model what they are, next to items: name, family, storage, backend,
// method, program, preset, and sums over its files: of every byte up to a gibibyte, of 1,024 pieces
// of a mebibyte beyond. `any`: the facts of any item.
Json model_identity(const ImageFacts& any, const ModelSpec& spec, const std::string& open_name);

}  // namespace tessera
