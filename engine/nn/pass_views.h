// Views of matrices as heads; the bytes that matrices take in an arena.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/core/index.h"
#include "engine/core/tensor.h"

namespace tessera {

// Arenas give memory by cache lines.
inline std::size_t padded_bytes(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

inline std::size_t matrix_bytes(std::int64_t rows, std::int64_t cols, std::size_t element = 4) {
  return padded_bytes(to_size(rows * cols) * element);
}

// [T, heads x width] as [T, heads, width].
inline TensorView heads_of(TensorView matrix, std::int64_t heads) {
  return {matrix.dtype, Shape{matrix.shape[0], heads, matrix.shape[1] / heads}, matrix.data,
          matrix.device};
}

}  // namespace tessera
