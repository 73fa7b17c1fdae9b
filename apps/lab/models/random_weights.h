// Seeded weights for models without files. A value depends on the seed, the tensor's name and the
// element's index alone, so any tensor can be made at any time, in any order, by any thread.
#pragma once

#include <cstdint>
#include <string_view>

#include "engine/core/tensor.h"

namespace tessera {

struct RandomWeightRule {
  std::uint64_t seed = 0;
  float matrix_std = 0.02f;  // 0 = 1 / sqrt(inputs), which keeps the scale of activations
};

// f32 host tensor. Rank 1 ".weight" (norms) are 1 + 0.02 n, other rank 1 0.02 n, tables ("embed",
// NBP's "tok_emb" and "pos_emb") n, everything else as the rule says; n is nearly standard normal
// (a sum of four uniforms).
Tensor random_weight(std::string_view name, const Shape& shape, const RandomWeightRule& rule);

}  // namespace tessera
