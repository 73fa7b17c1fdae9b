// Floats of 8 bits as files have them: E4M3 without infinities (OCP's "fn"), E5M2 as IEEE's.
#pragma once

#include <bit>
#include <cstdint>

#include "engine/core/index.h"

namespace tessera {

// Largest 448; 0x7f and 0xff are NaN.
constexpr float f8_e4m3_to_float(std::uint8_t bits) {
  const std::uint32_t sign = (bits & 0x80u) << 24, exponent = (bits >> 3) & 0xfu, rest = bits & 7u;
  if (exponent == 0xf && rest == 7) return std::bit_cast<float>(sign | 0x7fc00000u);
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 120) << 23) | (rest << 20));
  const float tiny = to_float(rest) * (1.0f / 512.0f);
  return sign != 0 ? -tiny : tiny;
}

// Largest 57344; exponent 31 is infinity or NaN.
constexpr float f8_e5m2_to_float(std::uint8_t bits) {
  const std::uint32_t sign = (bits & 0x80u) << 24, exponent = (bits >> 2) & 0x1fu, rest = bits & 3u;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | (rest << 21));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (rest << 21));
  const float tiny = to_float(rest) * (1.0f / 65536.0f);
  return sign != 0 ? -tiny : tiny;
}

}  // namespace tessera
