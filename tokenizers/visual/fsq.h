// Finite scalar quantization (Mentzer et al. 2023): every element of a latent is squashed between
// its outermost levels and rounded to one of them; a code numbers the combinations, the first
// element's level changing fastest. No codebook is learned.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tessera {

class FiniteScalars {
 public:
  // How many levels each element has, each at least 2; their product below 2^31.
  explicit FiniteScalars(std::vector<std::int64_t> levels);

  std::int64_t width() const { return std::ssize(levels_); }
  std::int64_t codes() const { return codes_; }
  // Latent [width] -> code. An element's level is round(tanh(z + shift) h - offset), ties to even,
  // with h = (levels - 1) 1.001 / 2, offset 1/2 for even numbers of levels, shift = atanh(offset /
  // h).
  std::int32_t code_of(std::span<const float> latent) const;
  // Code -> vector [width] of (level - levels / 2) / (levels / 2), about [-1, 1].
  void vector_of(std::int32_t code, std::span<float> out) const;

 private:
  std::vector<std::int64_t> levels_;
  std::int64_t codes_ = 1;
};

}  // namespace tessera
