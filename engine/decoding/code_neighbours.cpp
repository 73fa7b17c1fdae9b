#include "engine/decoding/code_neighbours.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/core/acceptance_math.h"
#include "engine/core/error.h"
#include "engine/core/index.h"

namespace tessera {

CodeNeighbours::CodeNeighbours(std::span<const float> codebook, std::int64_t codes,
                               std::int64_t most)
    : codes_(codes),
      width_(codes > 0 ? std::ssize(codebook) / codes : 0),
      most_(std::min(most, codes - 1)),
      vectors_(codebook.begin(), codebook.end()) {
  expects(codes >= 1 && width_ >= 1 && width_ * codes == std::ssize(codebook),
          "a codebook has one vector a code");
  expects(most >= 0, "a number of neighbours");
  for (std::int64_t code = 0; code < codes; ++code) {
    float* vector = vectors_.data() + code * width_;
    double length = 0;
    for (std::int64_t d = 0; d < width_; ++d) length += double{vector[d]} * vector[d];
    const double scale = length > 0 ? 1 / std::sqrt(length) : 0;
    for (std::int64_t d = 0; d < width_; ++d) {
      vector[d] = to_float(scale * vector[d]);
    }
  }
  nearest_.resize(to_size(codes * most_));
  std::vector<std::pair<double, std::int32_t>> others;
  for (std::int32_t code = 0; most_ > 0 && code < codes; ++code) {
    others.clear();
    for (std::int32_t other = 0; other < codes; ++other) {
      if (other != code) others.emplace_back(distance(code, other), other);
    }
    const auto edge = others.begin() + most_;
    std::partial_sort(others.begin(), edge, others.end());
    std::transform(others.begin(), edge, nearest_.begin() + code * most_,
                   [](const auto& pair) { return pair.second; });
  }
}

std::span<const std::int32_t> CodeNeighbours::nearest(std::int32_t code, std::int64_t count) const {
  return {nearest_.data() + code * most_, to_size(std::min(count, most_))};
}

double CodeNeighbours::distance(std::int32_t a, std::int32_t b) const {
  const float* x = vectors_.data() + a * width_;
  const float* y = vectors_.data() + b * width_;
  double total = 0;
  for (std::int64_t d = 0; d < width_; ++d) total += distance_term(x[d], y[d]);
  return total;
}

}  // namespace tessera
