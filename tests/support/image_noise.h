// Images that the Python recipes of the fixtures can make too: bytes from a linear congruential
// generator, and the CRC-32 both sides know an output by.
#pragma once

#include <zlib.h>

#include <cstdint>
#include <string_view>

#include "vision/image/image.h"

namespace tessera {

enum class NoisePattern { kNoise, kEdges };

// Byte i: the top byte, or 255 times the top bit, of the i-th state after `seed`.
inline Image noise_image(std::int64_t width, std::int64_t height, std::uint32_t seed,
                           NoisePattern pattern = NoisePattern::kNoise) {
  Image image(width, height);
  std::uint32_t state = seed;
  for (std::uint8_t& byte : image.rgb) {
    state = state * 1664525u + 1013904223u;
    byte = static_cast<std::uint8_t>(pattern == NoisePattern::kNoise ? state >> 24
                                                                     : (state >> 31) * 255u);
  }
  return image;
}

inline std::uint32_t crc32_of(const void* data, std::size_t size, std::uint32_t before = 0) {
  return static_cast<std::uint32_t>(
      crc32(before, static_cast<const Bytef*>(data), static_cast<uInt>(size)));
}

inline std::uint32_t crc32_of(const Image& image) {
  return crc32_of(image.rgb.data(), image.rgb.size());
}

}  // namespace tessera
