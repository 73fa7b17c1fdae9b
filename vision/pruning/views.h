// Borrowed, read-only matrices in which signals reach the pruners: fp32 rows, and rows of bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/core/error.h"
#include "engine/core/index.h"

namespace tessera {

using TokenIndex = std::int64_t;  // place of a token in its block

struct MatrixView {
  const float* data = nullptr;  // [rows, columns] fp32, dense
  std::int64_t rows = 0, columns = 0;

  bool empty() const { return rows == 0 || columns == 0; }
  std::span<const float> row(std::int64_t i) const {
    expects(i >= 0 && i < rows, "row of the matrix");
    return {data + i * columns, to_size(columns)};
  }
};

// Bit j of row i is bit j % 64 of word j / 64; bits after the last one are zero.
struct BitMatrixView {
  const std::uint64_t* data = nullptr;  // [rows, words()]
  std::int64_t rows = 0, bits = 0;

  std::int64_t words() const { return (bits + 63) / 64; }
  bool empty() const { return rows == 0; }
  std::span<const std::uint64_t> row(std::int64_t i) const {
    expects(i >= 0 && i < rows, "row of the bit matrix");
    return {data + i * words(), to_size(words())};
  }
};

}  // namespace tessera
