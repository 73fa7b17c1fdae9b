#include "tokenizers/visual/fsq.h"

#include <algorithm>
#include <cmath>

#include "engine/core/error.h"
#include "engine/core/index.h"

namespace tessera {

FiniteScalars::FiniteScalars(std::vector<std::int64_t> levels) : levels_(std::move(levels)) {
  for (const std::int64_t count : levels_) {
    expects(count >= 2 && codes_ < (std::int64_t{1} << 31) / count, "codes fit 31 bits");
    codes_ *= count;
  }
}

std::int32_t FiniteScalars::code_of(std::span<const float> latent) const {
  expects(latent.size() == levels_.size(), "a latent has an element a level count");
  std::int64_t code = 0, basis = 1;
  for (std::size_t i = 0; i < levels_.size(); ++i) {
    const std::int64_t count = levels_[i];
    const double half = to_double(count - 1) * 1.001 / 2;
    const double offset = count % 2 == 0 ? 0.5 : 0.0;
    const double bounded = std::tanh(double{latent[i]} + std::atanh(offset / half)) * half - offset;
    // Not a number is no level: the lowest one.
    const double rounded = std::isnan(bounded) ? -std::floor(half) : std::nearbyint(bounded);
    const auto digit = static_cast<std::int64_t>(rounded) + count / 2;
    code += std::clamp<std::int64_t>(digit, 0, count - 1) * basis;
    basis *= count;
  }
  return static_cast<std::int32_t>(code);
}

void FiniteScalars::vector_of(std::int32_t code, std::span<float> out) const {
  expects(code >= 0 && code < codes_, "codes are inside the codebook");
  expects(out.size() == levels_.size(), "a vector has an element a level count");
  std::int64_t rest = code;
  for (std::size_t i = 0; i < levels_.size(); ++i) {
    const std::int64_t half = levels_[i] / 2;
    out[i] = to_float(rest % levels_[i] - half) / to_float(half);
    rest /= levels_[i];
  }
}

}  // namespace tessera
