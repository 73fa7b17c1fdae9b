// How weights are kept unless something else is asked for.
#pragma once

#include <span>

#include "engine/checkpoint/checkpoint.h"
#include "engine/core/dtype.h"
#include "engine/families/model_spec.h"

namespace tessera {

// What keeps the numbers of those tensors that are matrices, which the checkpoint has: kFile where
// one is in blocks; bf16 or f16 where all are that; else f32.
DType stored_as_filed(std::span<const TensorSpec> tensors, const Checkpoint& weights);

// The same of a language model and its image encoder in two files; kFile where the encoder's
// numbers would be rounded next to the language model's.
DType stored_as_filed(const ModelSpec& pair, const Checkpoint& weights);

}  // namespace tessera
