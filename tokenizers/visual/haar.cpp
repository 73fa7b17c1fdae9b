#include "tokenizers/visual/haar.h"

#include <array>

#include "engine/core/index.h"

namespace tessera {

namespace {

// Sums and differences of all pairs whose numbers differ in one bit, bit after bit.
void butterfly(std::array<float, 8>& cell) {
  for (std::size_t bit = 1; bit < 8; bit *= 2) {
    for (std::size_t i = 0; i < 8; ++i) {
      if ((i & bit) != 0) continue;
      const float low = cell[i], high = cell[i | bit];
      cell[i] = low + high;
      cell[i | bit] = low - high;
    }
  }
}

// Visits every cell of [T, H, W, C], T, H and W even: the place of its first element, and how far
// it is to the element at each corner.
template <typename Visit>
void for_each_cell(const Shape& shape, Visit visit) {
  const std::int64_t row = shape[2] * shape[3], frame = shape[1] * row;
  std::array<std::int64_t, 8> corner{};
  for (std::size_t i = 0; i < 8; ++i) {
    corner[i] = to_index(i >> 2) * frame + to_index(i >> 1 & 1) * row + to_index(i & 1) * shape[3];
  }
  std::int64_t cell = 0;
  for (std::int64_t t = 0; t < shape[0]; t += 2) {
    for (std::int64_t y = 0; y < shape[1]; y += 2) {
      for (std::int64_t x = 0; x < shape[2]; x += 2) {
        visit(cell++, t * frame + y * row + x * shape[3], corner);
      }
    }
  }
}

}  // namespace

Tensor haar(ConstTensorView in) {
  const Shape& shape = in.shape;
  expects(shape.rank() == 4 && shape[0] % 2 == 0 && shape[1] % 2 == 0 && shape[2] % 2 == 0,
          "a wavelet halves even extents");
  const std::int64_t channels = shape[3];
  Tensor out = Tensor::host(DType::kF32, {shape[0] / 2, shape[1] / 2, shape[2] / 2, 8 * channels});
  const float* from = in.f32();
  float* to = out.f32();
  for_each_cell(shape, [&](std::int64_t cell, std::int64_t at, const auto& corner) {
    for (std::int64_t c = 0; c < channels; ++c) {
      std::array<float, 8> values{};
      for (std::size_t i = 0; i < 8; ++i) values[i] = from[at + corner[i] + c];
      butterfly(values);
      for (std::size_t i = 0; i < 8; ++i) {
        to[(cell * 8 + to_index(i)) * channels + c] = values[i] * 0.125f;
      }
    }
  });
  return out;
}

Tensor inverse_haar(ConstTensorView in) {
  const Shape& shape = in.shape;
  expects(shape.rank() == 4 && shape[3] % 8 == 0, "a wavelet has eight bands");
  const std::int64_t channels = shape[3] / 8;
  Tensor out = Tensor::host(DType::kF32, {2 * shape[0], 2 * shape[1], 2 * shape[2], channels});
  const float* from = in.f32();
  float* to = out.f32();
  for_each_cell(out.shape(), [&](std::int64_t cell, std::int64_t at, const auto& corner) {
    for (std::int64_t c = 0; c < channels; ++c) {
      std::array<float, 8> values{};
      for (std::size_t i = 0; i < 8; ++i) {
        values[i] = from[(cell * 8 + to_index(i)) * channels + c];
      }
      butterfly(values);
      for (std::size_t i = 0; i < 8; ++i) to[at + corner[i] + c] = values[i];
    }
  });
  return out;
}

}  // namespace tessera
