// Parts of a matrix of rows, borrowed.
#pragma once

#include <array>
#include <span>
#include <type_traits>

#include "engine/core/index.h"
#include "engine/core/tensor.h"

namespace tessera {

// Rows [first, first + rows) of x [M, ...]; TensorView or ConstTensorView.
template <typename View>
View rows_of(View x, std::int64_t first, std::int64_t rows) {
  expects(first >= 0 && rows >= 0 && first + rows <= x.shape[0], "the rows are in the matrix");
  std::array<std::int64_t, kMaxRank> extents{};
  for (int axis = 0; axis < x.shape.rank(); ++axis) {
    nth(extents, axis) = axis == 0 ? rows : x.shape[axis];
  }
  const std::int64_t row = x.shape[0] == 0 ? 0 : x.shape.elements() / x.shape[0];
  const std::size_t skipped = to_size(first * row) * dtype_size(x.dtype);
  x.shape = Shape(std::span<const std::int64_t>(extents.data(), to_size(x.shape.rank())));
  using Byte = std::conditional_t<std::is_const_v<std::remove_pointer_t<decltype(x.data)>>,
                                  const std::byte, std::byte>;
  x.data = static_cast<Byte*>(x.data) + skipped;
  return x;
}

}  // namespace tessera
