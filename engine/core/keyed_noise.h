// What 32 random bits stand for in a decision: a uniform, Gumbel noise, an exponential clock. One
// arithmetic for hosts and devices.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "engine/core/fixed_math.h"
#include "engine/core/index.h"

namespace tessera {

// In (0, 1): the bits and the half between.
constexpr double uniform_of(std::uint32_t bits) { return (bits + 0.5) * 0x1p-32; }

// Gumbel(0, 1) noise; grows with the bits. -3.2 < value < kLargestGumbel.
inline constexpr double kLargestGumbel = 22.9;
constexpr double gumbel_of(std::uint32_t bits) {
  return -fixed_log(-fixed_log(uniform_of(bits)));
}

// Bits below the entry of a step give less noise than that many quarters. Not the tightest bound.
inline constexpr std::size_t kGumbelSteps = 92;
constexpr std::array<std::uint32_t, kGumbelSteps> fewest_gumbel_bits() {
  std::array<std::uint32_t, kGumbelSteps> out{};
  for (std::size_t k = 0; k < out.size(); ++k) {
    const double step = to_double(k) / 4 - 1e-9;
    const double edge = 0x1p32 * fixed_exp(-fixed_exp(-step)) - 2;
    out[k] = edge > 0 ? static_cast<std::uint32_t>(edge) : 0;
  }
  return out;
}
// The step of noise `least`, 0 < least < kLargestGumbel.
constexpr std::size_t gumbel_step(double least) {
  return static_cast<std::size_t>(static_cast<int>(least * 4));
}

// When the clock of an id with this weight rings; the earliest one wins.
constexpr double clock_of(std::uint32_t bits, double weight) {
  return -fixed_log(uniform_of(bits)) / weight;
}
// Whether a clock of these bits rings after the best one for sure; `latest` is the best one's time
// times the weight. -log(u) >= 1 - u tells without a logarithm.
constexpr bool rings_late(std::uint32_t bits, double latest) {
  return (0x1p32 - 0.5 - bits) * 0x1p-32 > latest;
}
// Whether no bits at all could ring in time.
constexpr bool never_rings(double latest) { return !(latest >= 0x1p-33); }

}  // namespace tessera
