// Smooth noise of one scene: random numbers on a lattice of 32 x 32 x 32 points that repeats,
// blended between the points. Only +, -, * of IEEE floats, so every machine agrees on every bit.
// Internal to apps/lab/still_life.
#pragma once

#include <cstdint>
#include <vector>

#include "apps/lab/scene/geometry.h"
#include "engine/core/index.h"

namespace tessera::still {

using world::Vec;

class Lattice {
 public:
  explicit Lattice(std::uint64_t seed);

  // In (0, 1), 1 unit between independent points; coordinates within +-4000.
  float at(float x, float y, float z) const {
    const Cell i(x), j(y), k(z);
    return mix(plane(i, j, k.low), plane(i, j, k.high), k.blend);
  }
  float at(Vec p) const { return at(p.x, p.y, p.z); }
  // On a plane of the lattice, `layer` any number.
  float at(float x, float y, int layer) const {
    return plane(Cell(x), Cell(y), low_bits<std::uint32_t>(layer) % kSide);
  }
  // The number at a lattice point itself.
  float raw(int x, int y, int layer) const {
    return value(low_bits<std::uint32_t>(x) % kSide, low_bits<std::uint32_t>(y) % kSide,
                 low_bits<std::uint32_t>(layer) % kSide);
  }
  // Four octaves, about 0.5 in the mean.
  float rough(Vec p) const {
    return 0.53f * at(p) + 0.27f * at(p * 2.03f) + 0.13f * at(p * 4.07f) + 0.07f * at(p * 8.11f);
  }

 private:
  static constexpr std::uint32_t kSide = 32;

  struct Cell {
    explicit Cell(float x) {
      const int at = truncate<int>(x + 4096.0f);
      const float t = x - to_float(at - 4096);
      low = low_bits<std::uint32_t>(at) % kSide;
      high = (low + 1) % kSide;
      blend = t * t * (3.0f - 2.0f * t);
    }
    std::uint32_t low, high;
    float blend;
  };

  static float mix(float a, float b, float t) { return a + (b - a) * t; }
  float value(std::uint32_t x, std::uint32_t y, std::uint32_t z) const {
    return values_[(z * kSide + y) * kSide + x];
  }
  float plane(const Cell& i, const Cell& j, std::uint32_t z) const {
    return mix(mix(value(i.low, j.low, z), value(i.high, j.low, z), i.blend),
               mix(value(i.low, j.high, z), value(i.high, j.high, z), i.blend), j.blend);
  }

  std::vector<float> values_;
};

}  // namespace tessera::still
