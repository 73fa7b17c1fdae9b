// Natural logarithm, exponential and whole powers built from IEEE additions, products and divisions
// alone, in one order, so that their bits do not depend on the C library or the machine. Logarithm
// and exponential err by less than 2 units in the last place over the ranges used here
// (tests/unit/sampling measures it).
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

#include "engine/core/index.h"

namespace tessera {

namespace fixed_math_detail {
inline constexpr double kLn2High = 0x1.62e42fefa38p-1;  // 42 bits: k times this is exact
inline constexpr double kLn2Low = 0x1.ef35793c7673p-45;
inline constexpr double kInverseLn2 = 0x1.71547652b82fep+0;
}  // namespace fixed_math_detail

// log(x) for finite, normal x > 0. x = 2^k m with m in [sqrt(1/2), sqrt(2));
// log m = 2 (s + s^3/3 + s^5/5 + ...), s = (m - 1) / (m + 1), |s| < 0.1716.
constexpr double fixed_log(double x) {
  using namespace fixed_math_detail;
  const std::uint64_t bits = std::bit_cast<std::uint64_t>(x);
  // 0x3fe6a09e667f3bcd is sqrt(1/2): subtracting it puts the exponent boundary there.
  const std::int64_t k = static_cast<std::int64_t>(bits - 0x3fe6a09e667f3bcdull) >> 52;
  const double m = std::bit_cast<double>(bits - (static_cast<std::uint64_t>(k) << 52));
  const double f = m - 1.0;
  const double s = f / (m + 1.0);
  const double z = s * s;
  double series = 1.0 / 23.0;
  series = series * z + 1.0 / 21.0;
  series = series * z + 1.0 / 19.0;
  series = series * z + 1.0 / 17.0;
  series = series * z + 1.0 / 15.0;
  series = series * z + 1.0 / 13.0;
  series = series * z + 1.0 / 11.0;
  series = series * z + 1.0 / 9.0;
  series = series * z + 1.0 / 7.0;
  series = series * z + 1.0 / 5.0;
  series = series * z + 1.0 / 3.0;
  // 2 s = f - s f, which keeps the low bits that the division lost.
  const double tail = s * (2.0 * z * series - f);
  const double exponent = to_double(k);
  return exponent * kLn2High + (f + (tail + exponent * kLn2Low));
}

// exp(x) for any x; 0 below -708, infinity above 709. No branch and no conversion to an integer:
// the integer k nearest x / ln 2 stands in the low bits of x / ln 2 + 1.5 * 2^52.
constexpr double fixed_exp(double x) {
  using namespace fixed_math_detail;
  constexpr double kShift = 0x1.8p52;
  const double shifted = x * kInverseLn2 + kShift;
  const double exponent = shifted - kShift;
  const std::uint64_t k =
      std::bit_cast<std::uint64_t>(shifted) - std::bit_cast<std::uint64_t>(kShift);
  const double r = (x - exponent * kLn2High) - exponent * kLn2Low;  // |r| <= 0.3466
  double series = 1.0 / 6227020800.0;
  series = series * r + 1.0 / 479001600.0;
  series = series * r + 1.0 / 39916800.0;
  series = series * r + 1.0 / 3628800.0;
  series = series * r + 1.0 / 362880.0;
  series = series * r + 1.0 / 40320.0;
  series = series * r + 1.0 / 5040.0;
  series = series * r + 1.0 / 720.0;
  series = series * r + 1.0 / 120.0;
  series = series * r + 1.0 / 24.0;
  series = series * r + 1.0 / 6.0;
  series = series * r + 0.5;
  const double value = (1.0 + (r + r * r * series)) * std::bit_cast<double>((k + 1023) << 52);
  const double up_to_largest = x > 709.0 ? std::numeric_limits<double>::infinity() : value;
  return x < -708.0 ? 0.0 : up_to_largest;
}

// The same in single precision; 0 below -87, infinity above 88.
constexpr float fixed_exp(float x) {
  constexpr float kShift = 0x1.8p23f;
  constexpr float kLn2High = 0x1.62e4p-1f;  // 14 bits
  constexpr float kLn2Low = 0x1.7f7d1cp-20f;
  const float shifted = x * 0x1.715476p+0f + kShift;
  const float exponent = shifted - kShift;
  const std::uint32_t k =
      std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(kShift);
  const float r = (x - exponent * kLn2High) - exponent * kLn2Low;
  float series = 1.0f / 5040.0f;
  series = series * r + 1.0f / 720.0f;
  series = series * r + 1.0f / 120.0f;
  series = series * r + 1.0f / 24.0f;
  series = series * r + 1.0f / 6.0f;
  series = series * r + 0.5f;
  const float value = (1.0f + (r + r * r * series)) * std::bit_cast<float>((k + 127) << 23);
  const float up_to_largest = x > 88.0f ? std::numeric_limits<float>::infinity() : value;
  return x < -87.0f ? 0.0f : up_to_largest;
}

// x^k by squaring, from the lowest bit of k up; 1 for k = 0. Each product adds half a unit in the
// last place, which squarings double: below k units in all.
constexpr double fixed_power(double x, std::uint32_t k) {
  double power = 1.0;
  for (double square = x; k != 0; k >>= 1) {
    if ((k & 1u) != 0) power *= square;
    square *= square;
  }
  return power;
}

}  // namespace tessera
