// Search for NaN and infinity in weights, run over every tensor while a model loads.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/core/tensor.h"

namespace tessera {

struct NonFinite {
  std::int64_t index = 0;  // of the first one, in row-major order
  std::int64_t count = 0;
};

// nullopt when every element is finite, of f64 as f32; integers always are. Host memory only.
std::optional<NonFinite> find_non_finite(const ConstTensorView& view);

}  // namespace tessera
