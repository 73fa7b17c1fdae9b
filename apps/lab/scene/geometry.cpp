#include "apps/lab/scene/geometry.h"

#include <algorithm>

#include "engine/core/index.h"

namespace tessera::world {

Measures measures_of(SolidKind kind, SolidSize size) {
  const float scale = size == SolidSize::kLarge ? 1.0f : 0.6f;
  switch (kind) {
    case SolidKind::kSphere:
      return {1.0f * scale, 2.0f * scale, 1.0f * scale};
    case SolidKind::kCube:
      return {0.78f * scale, 1.56f * scale, 1.1032f * scale};
    case SolidKind::kCylinder:
      return {0.8f * scale, 1.8f * scale, 0.8f * scale};
    case SolidKind::kCone:
      return {1.05f * scale, 2.1f * scale, 1.05f * scale};
  }
  return {};
}

Camera camera() {
  const Vec forward = normalised(kLookAt - kEye);
  // right is +x exactly, because the eye and the point looked at share x = 0.
  return {forward, {1.0f, 0.0f, 0.0f}, {0.0f, forward.z, -forward.y}};
}

Camera orbit_camera(int steps) {
  constexpr float kCos = 0.99978068f, kSin = 0.02094242f;  // of 1.2 degrees
  Vec out = kEye - kLookAt;
  Camera view = camera();
  const auto turn = [](Vec v) {
    return Vec{kCos * v.x - kSin * v.z, v.y, kSin * v.x + kCos * v.z};
  };
  for (int i = 0; i < steps; ++i) {
    out = turn(out);
    view = {turn(view.forward), turn(view.right), turn(view.up), kLookAt + out};
  }
  return view;
}

Projected project(const Camera& view, Vec point) {
  const Vec offset = point - view.eye;
  const float depth = dot(offset, view.forward);
  const float scale = 1.0f / (depth * view.tan_half);
  return {dot(offset, view.right) * scale, dot(offset, view.up) * scale, depth};
}

PixelRect pixels_around(std::span<const Vec> points, const Camera& view, int size) {
  float low_u = 1e9f, high_u = -1e9f, low_v = 1e9f, high_v = -1e9f;
  for (const Vec& point : points) {
    const Projected at = project(view, point);
    low_u = std::min(low_u, at.u);
    high_u = std::max(high_u, at.u);
    low_v = std::min(low_v, at.v);
    high_v = std::max(high_v, at.v);
  }
  const float half = 0.5f * to_float(size);
  const auto pixel = [&](float coordinate) {
    return truncate<int>(std::floor(std::clamp((1.0f + coordinate) * half, -2.0f, half * 3)));
  };
  return {std::max(0, pixel(low_u) - 1), std::max(0, pixel(-high_v) - 1),
          std::min(size, pixel(high_u) + 2), std::min(size, pixel(-low_v) + 2)};
}

std::array<Vec, 8> box_corners(Vec base, float reach, float deep, float height) {
  std::array<Vec, 8> corners;
  for (int i = 0; i < 8; ++i) {
    corners[i] = base + Vec{(i & 1) != 0 ? reach : -reach, (i & 2) != 0 ? height : 0.0f,
                            (i & 4) != 0 ? deep : -deep};
  }
  return corners;
}

float screen_x(const Solid& solid) {
  const Measures measures = measures_of(solid.kind, solid.size);
  return project(camera(), {to_float(solid.x), 0.5f * measures.height, to_float(solid.z)}).u;
}

void order_left_to_right(std::vector<Solid>* solids) {
  std::stable_sort(solids->begin(), solids->end(),
                   [](const Solid& a, const Solid& b) { return screen_x(a) < screen_x(b); });
}

bool apart_on_ground(const Solid& a, const Solid& b, double gap) {
  const double reach = double{measures_of(a.kind, a.size).ground_radius} +
                       double{measures_of(b.kind, b.size).ground_radius} + gap;
  const double x = a.x - b.x;
  const double z = a.z - b.z;
  return x * x + z * z > reach * reach;
}

}  // namespace tessera::world
