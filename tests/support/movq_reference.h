// The small video tokenizer of tests/golden/movq (assets/recipes/fixtures_movq.py).
#pragma once

#include <map>
#include <string>

#include "engine/checkpoint/checked_weight.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/nn/movq_spec.h"
#include "tests/support/hashed_weights.h"

namespace tessera {

inline MovqSpec reference_movq_spec() {
  MovqSpec spec;
  spec.frame.base_channels = 32;
  spec.frame.multipliers = {1, 2};
  spec.frame.res_blocks = 2;
  spec.frame.latent_channels = spec.frame.embed_dim = 4;
  spec.frame.codes = 64;
  spec.frame.l2_normalize = false;
  spec.names = MovqNames::kHfEmu3;
  return spec;
}

// Weights by their names, matrices half of that, but the codebook, which is recorded.
inline std::map<std::string, Tensor> reference_movq_weights(const Checkpoint& recorded) {
  const std::string book = "quantize.embedding.weight";
  std::map<std::string, Tensor> tensors = hashed_weights(movq_tensors(reference_movq_spec()));
  for (auto& [name, tensor] : tensors) {
    const std::int64_t values = tensor.shape().rank() > 1 ? tensor.shape().elements() : 0;
    for (std::int64_t i = 0; i < values; ++i) tensor.f32()[i] *= 0.5f;
  }
  tensors.at(book) = widened(checked_weight(recorded, book, {64, 4}));
  return tensors;
}

}  // namespace tessera
