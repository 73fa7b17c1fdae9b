// What wood, marble, cloth, metal and speckled stone look like at a point: procedural textures over
// a scene's lattice (Perlin, "An image synthesizer", 1985). Internal to apps/lab/still_life.
#pragma once

#include <algorithm>

#include "apps/lab/still_life/lattice.h"
#include "apps/lab/still_life/still_life.h"

namespace tessera::still {

struct SurfacePoint {
  Vec place;        // in the frame of the solid or table, units of the world
  Vec normal;       // in the same frame, unit length
  Vec offset;       // of this object in the lattice, so that no two are alike
  float footprint;  // width of a pixel there, in units of the world
  bool table;       // a table has planks
};

struct Texel {
  Vec albedo;    // linear light
  float gloss;   // strength of the lamp's reflection, 0 to 1
  float mirror;  // share of light reflected as metal does
  Vec tilt;      // of the normal, in the frame of the point: scratches
};

Texel texel_of(Surface surface, Colour colour, const SurfacePoint& point, const Lattice& lattice);

// Linear light.
Vec albedo_of(Colour colour);

inline Vec mix(Vec a, Vec b, float t) { return a + (b - a) * t; }
// From 0 at `low` to 1 at `high`, level at both.
inline float step_up(float low, float high, float value) {
  const float t = std::clamp((value - low) / (high - low), 0.0f, 1.0f);
  return t * t * (3.0f - 2.0f * t);
}

}  // namespace tessera::still
