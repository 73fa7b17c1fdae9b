// Rays against the four solids, and what light they bring back. Internal to apps/lab/scene.
#pragma once

#include <array>
#include <cstdint>

#include "apps/lab/scene/geometry.h"

namespace tessera::world {

// A solid where it stands in one image. Videos move `base` and turn (cos_yaw, sin_yaw) frame by
// frame; a still image takes them from the scene.
struct PosedSolid {
  SolidKind kind;
  Measures measures;
  Vec base;  // centre of the bottom
  float cos_yaw;
  float sin_yaw;
  Vec albedo;  // linear light
  bool shiny;
};

struct Hit {
  float distance;
  Vec normal;
};

// Nearest intersection in front of the origin, if any. `direction` need not have unit length.
bool intersect(const PosedSolid& solid, Vec origin, Vec direction, Hit* hit);

inline constexpr int kNoiseCells = 16;  // the floor's noise repeats every 16 cells each way

struct PosedScene {
  std::array<PosedSolid, kMaxSolids> solids;
  int count = 0;
  FloorKind floor = FloorKind::kGray;
  std::array<float, kNoiseCells * kNoiseCells> noise;  // factor on the floor's albedo
};

PosedScene pose(const Scene& scene);

// Bit i of a mask: solid i may matter to this ray. Masks only save work; they never change a
// result.
using SolidMask = std::uint32_t;

// Light (linear RGB) arriving at `eye` along a ray. `seen`: solids the ray may hit; `shading`:
// solids that may throw a shadow on the floor point it may hit.
Vec radiance(const PosedScene& scene, Vec eye, Vec direction, SolidMask seen, SolidMask shading);

// Towards the light, unit length.
Vec light_direction();

}  // namespace tessera::world
