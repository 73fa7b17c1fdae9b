// The element type that kernels read and write tables and caches with, for each storage type. A
// type has load_as_float() and store_float() (simt.cuh).
#pragma once

#include <cstdint>

#include "engine/core/storage.h"

namespace tessera::cuda {

// function(T{}) with the element type of a storage type.
template <typename Function>
auto with_stored(DType storage, Function&& function) {
  if (storage == DType::kF32) return function(float{});
  expects(storage == DType::kBF16, "a storage type that kernels read");
  return function(std::uint16_t{});
}

}  // namespace tessera::cuda
