// Bilinear resizing of feature rows.
#include "vision/encoder/feature_map.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/core/index.h"

namespace tessera {

namespace {

// What one place of the new side reads of the old one: two neighbours and the share of the second.
struct Source {
  std::int64_t first = 0, second = 0;
  float share = 0.0f;
};

// In f32, as the reference computes them.
std::vector<Source> sources(std::int64_t from, std::int64_t to) {
  std::vector<Source> out;
  const float scale = to_float(from) / to_float(to);
  for (std::int64_t i = 0; i < to; ++i) {
    const float at = std::max(0.0f, scale * (to_float(i) + 0.5f) - 0.5f);
    Source source;
    source.first = std::min(truncate<std::int64_t>(at), from - 1);
    source.second = std::min(source.first + 1, from - 1);
    source.share = std::clamp(at - to_float(source.first), 0.0f, 1.0f);
    out.push_back(source);
  }
  return out;
}

}  // namespace

Tensor resize_map(ConstTensorView x, MapSize from, MapSize to) {
  expects(x.shape.rank() == 2 && x.shape[0] == from.places() && from.rows > 0 && from.cols > 0,
          "resize_map: x is [places, C]");
  expects(to.rows > 0 && to.cols > 0, "resize_map: there are places to fill");
  const std::int64_t width = x.shape[1];
  Tensor out = Tensor::host(DType::kF32, {to.places(), width});
  const std::vector<Source> rows = sources(from.rows, to.rows);
  const std::vector<Source> cols = sources(from.cols, to.cols);
  float* next = out.f32();
  for (const Source& row : rows) {
    for (const Source& col : cols) {
      const float* top_left = x.f32() + (row.first * from.cols + col.first) * width;
      const float* top_right = x.f32() + (row.first * from.cols + col.second) * width;
      const float* low_left = x.f32() + (row.second * from.cols + col.first) * width;
      const float* low_right = x.f32() + (row.second * from.cols + col.second) * width;
      for (std::int64_t c = 0; c < width; ++c) {
        const float top = (1.0f - col.share) * top_left[c] + col.share * top_right[c];
        const float low = (1.0f - col.share) * low_left[c] + col.share * low_right[c];
        *next++ = (1.0f - row.share) * top + row.share * low;
      }
    }
  }
  return out;
}

MapSize onevision_map_size(MapSize map, std::int64_t side, std::int64_t max_tiles) {
  const double t = std::sqrt(to_double(map.places()) / to_double(max_tiles * side * side));
  if (t <= 1.1) return map;
  // Quotient rounded down by the exact remainder: a plain division may round up to a whole number.
  const auto over_t = [&](std::int64_t n) {
    const auto value = to_double(n);
    return truncate<std::int64_t>(std::round((value - std::fmod(value, t)) / t));
  };
  return {over_t(map.rows), over_t(map.cols)};
}

}  // namespace tessera
