// Rotary embeddings of any stretch as divisors of frequencies, one a pair of a head.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/nn/rope_table.h"

namespace tessera {

// For a 1-D table that kDivided can give: a divisor for each pair, with which it turns as `spec` has
// it, to the last bit but for a few pairs in a thousand.
std::vector<float> rope_divisors(const RopeSpec& spec, std::int64_t head_dim);

}  // namespace tessera
