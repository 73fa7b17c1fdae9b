// What tells a captioning model from another of the same name: digests of its configuration and
// tokenizer, and of names, types, shapes and samples of its weights.
#pragma once

#include "apps/runtime/caption_model.h"
#include "engine/core/json.h"

namespace tessera {

// {"config.json": 16 digits, ..., "weights": 16 digits}. Of each tensor the first, middle and last
// 64 bytes count: enough for another training run to show, and no weight file is read whole. Error
// kModel if a file cannot be read.
Json model_digest(const CaptionModel& model);

}  // namespace tessera
