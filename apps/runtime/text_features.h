// What a text encoder made of a text, out of a file, for models that attend to such rows.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "engine/core/tensor.h"
#include "engine/families/model_spec.h"

namespace tessera {

// The one tensor of a weight file, [S, width] or [1, S, width] with S at most wanted->rows, as f32
// [wanted->rows, width], zeros after its rows. Null without a file where nothing is wanted. Error
// kUsage (E_VIDEO_TEXT): a file missing or not wanted; kModel: those of Checkpoint::open, and
// E_VIDEO_TEXT for another shape, E_WEIGHT_NOT_FINITE.
std::shared_ptr<const Tensor> text_features_of(const std::string& file,
                                               const std::optional<ContextSpec>& wanted);

}  // namespace tessera
