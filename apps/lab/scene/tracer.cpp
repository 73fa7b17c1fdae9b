#include "apps/lab/scene/tracer.h"

#include <algorithm>

#include "engine/core/index.h"
#include "engine/core/philox.h"

namespace tessera::world {
namespace {

constexpr float kNear = 1e-4f;
constexpr float kAmbient = 0.30f;
constexpr float kAmbientUp = 0.10f;
constexpr float kDirect = 0.66f;
constexpr float kFloorNoise = 0.03f;  // largest relative change of a cell's albedo
constexpr float kShinyDiffuse = 0.50f;
constexpr float kShinyMirror = 0.80f;
constexpr float kTint = 0.88f;  // how far a mirror takes on the colour of its solid, as metal does
constexpr float kHighlight = 1.3f;
constexpr float kBevel = 0.22f;  // width of a shiny cube's polished edge, in half edges

constexpr std::array<Vec, kSolidColours> kAlbedo = {
    linear(0.88f, 0.10f, 0.12f),  // red
    linear(0.10f, 0.66f, 0.16f),  // green
    linear(0.12f, 0.24f, 0.94f),  // blue
    linear(0.98f, 0.88f, 0.08f),  // yellow
    linear(0.58f, 0.14f, 0.76f),  // purple
    linear(0.08f, 0.82f, 0.88f),  // cyan
    linear(1.00f, 0.50f, 0.04f),  // orange
    linear(0.97f, 0.97f, 0.97f),  // white
};

constexpr Vec kSkyLow = linear(0.90f, 0.94f, 0.98f);
constexpr Vec kSkyHigh = linear(0.52f, 0.66f, 0.92f);

// Steep just above the table's edge, where the camera sees it, then gentle up to the zenith.
Vec sky(Vec unit) {
  const float low = std::clamp((unit.y + 0.53f) * 4.5f, 0.0f, 0.45f);
  const float high = std::clamp((unit.y + 0.43f) * 0.385f, 0.0f, 0.55f);
  const float t = low + high;
  return kSkyLow * (1.0f - t) + kSkyHigh * t;
}

Vec floor_albedo(const PosedScene& scene, float x, float z) {
  const int cell_x = truncate<int>(std::floor(x * (1.0f / kCell)));
  const int cell_z = truncate<int>(std::floor(z * (1.0f / kCell)));
  const unsigned row = low_bits<unsigned>(cell_z) % kNoiseCells;
  const unsigned column = low_bits<unsigned>(cell_x) % kNoiseCells;
  const float noise = scene.noise[row * kNoiseCells + column];
  switch (scene.floor) {
    case FloorKind::kGray:
      return linear(0.62f, 0.62f, 0.62f) * noise;
    case FloorKind::kBrown:
      return linear(0.58f, 0.40f, 0.26f) * noise;
    case FloorKind::kDark:
      return linear(0.24f, 0.24f, 0.27f) * noise;
    case FloorKind::kCheckered:
      break;
  }
  return ((cell_x + cell_z) & 1) != 0 ? linear(0.80f, 0.80f, 0.78f) * noise
                                      : linear(0.36f, 0.36f, 0.38f) * noise;
}

// Keeps the nearer of `hit` and (distance, normal); tells whether it is the new one.
bool keep_nearer(float distance, Vec normal, Hit* hit, bool found) {
  if (distance <= kNear || (found && distance >= hit->distance)) return found;
  *hit = {distance, normal};
  return true;
}

bool intersect_sphere(const PosedSolid& solid, Vec origin, Vec direction, Hit* hit) {
  const float radius = solid.measures.radius;
  const Vec centre{solid.base.x, solid.base.y + radius, solid.base.z};
  const Vec offset = origin - centre;
  const float a = dot(direction, direction);
  const float b = dot(offset, direction);
  const float c = dot(offset, offset) - radius * radius;
  const float discriminant = b * b - a * c;
  if (discriminant <= 0.0f) return false;
  const float root = std::sqrt(discriminant);
  float distance = (-b - root) / a;
  if (distance <= kNear) distance = (-b + root) / a;
  if (distance <= kNear) return false;
  *hit = {distance, (offset + direction * distance) * (1.0f / radius)};
  return true;
}

bool intersect_cube(const PosedSolid& solid, Vec origin, Vec direction, Hit* hit) {
  const float c = solid.cos_yaw;
  const float s = solid.sin_yaw;
  const float half = solid.measures.radius;
  const Vec offset = origin - Vec{solid.base.x, solid.base.y + half, solid.base.z};
  const float from[3] = {c * offset.x + s * offset.z, offset.y, c * offset.z - s * offset.x};
  const float along[3] = {c * direction.x + s * direction.z, direction.y,
                          c * direction.z - s * direction.x};
  float enter = -1e30f;
  float leave = 1e30f;
  int enter_axis = 0;
  for (int axis = 0; axis < 3; ++axis) {
    if (along[axis] == 0.0f) {
      if (from[axis] > half || from[axis] < -half) return false;
      continue;
    }
    const float inverse = 1.0f / along[axis];
    const float first = (-half - from[axis]) * inverse;
    const float second = (half - from[axis]) * inverse;
    const float low = first < second ? first : second;
    const float high = first < second ? second : first;
    if (low > enter) {
      enter = low;
      enter_axis = axis;
    }
    if (high < leave) leave = high;
  }
  if (enter > leave || enter <= kNear) return false;
  const float sign = along[enter_axis] > 0.0f ? -1.0f : 1.0f;
  hit->distance = enter;
  if (enter_axis == 0) hit->normal = {c * sign, 0.0f, s * sign};
  if (enter_axis == 1) hit->normal = {0.0f, sign, 0.0f};
  if (enter_axis == 2) hit->normal = {-s * sign, 0.0f, c * sign};
  return true;
}

// Flat disc of `radius` at height `y` over the solid's base, facing `facing` (+1 up, -1 down).
bool intersect_disc(const PosedSolid& solid, Vec offset, Vec direction, float y, float facing,
                    Hit* hit, bool found) {
  if (direction.y * facing >= 0.0f) return found;
  const float distance = (y - offset.y) / direction.y;
  const float x = offset.x + direction.x * distance;
  const float z = offset.z + direction.z * distance;
  if (x * x + z * z > solid.measures.radius * solid.measures.radius) return found;
  return keep_nearer(distance, {0.0f, facing, 0.0f}, hit, found);
}

bool intersect_cylinder(const PosedSolid& solid, Vec origin, Vec direction, Hit* hit) {
  const Vec offset = origin - solid.base;
  const float radius = solid.measures.radius;
  const float height = solid.measures.height;
  const float a = direction.x * direction.x + direction.z * direction.z;
  const float b = offset.x * direction.x + offset.z * direction.z;
  const float c = offset.x * offset.x + offset.z * offset.z - radius * radius;
  const float discriminant = b * b - a * c;
  if (discriminant <= 0.0f && c > 0.0f) return false;
  bool found = false;
  if (discriminant > 0.0f && a > 0.0f) {
    const float distance = (-b - std::sqrt(discriminant)) / a;
    const Vec point = offset + direction * distance;
    if (point.y >= 0.0f && point.y <= height) {
      found = keep_nearer(distance, {point.x / radius, 0.0f, point.z / radius}, hit, found);
    }
  }
  found = intersect_disc(solid, offset, direction, height, 1.0f, hit, found);
  return intersect_disc(solid, offset, direction, 0.0f, -1.0f, hit, found);
}

bool intersect_cone(const PosedSolid& solid, Vec origin, Vec direction, Hit* hit) {
  const Vec offset = origin - solid.base;
  const float height = solid.measures.height;
  const float slope = solid.measures.radius / height;
  const float k = slope * slope;
  const float below = height - offset.y;  // below the apex
  const float a =
      direction.x * direction.x + direction.z * direction.z - k * direction.y * direction.y;
  const float b = offset.x * direction.x + offset.z * direction.z + k * below * direction.y;
  const float c = offset.x * offset.x + offset.z * offset.z - k * below * below;
  const float discriminant = b * b - a * c;
  bool found = false;
  if (discriminant > 0.0f && a != 0.0f) {
    const float root = std::sqrt(discriminant);
    for (const float distance : {(-b - root) / a, (-b + root) / a}) {
      const Vec point = offset + direction * distance;
      if (point.y < 0.0f || point.y > height) continue;
      const Vec normal = normalised({point.x, k * (height - point.y), point.z});
      if (dot(normal, direction) < 0.0f) found = keep_nearer(distance, normal, hit, found);
    }
  }
  return intersect_disc(solid, offset, direction, 0.0f, -1.0f, hit, found);
}

bool in_shadow(const PosedScene& scene, Vec point, SolidMask shading) {
  const Vec light = light_direction();
  Hit hit;
  for (int i = 0; i < scene.count; ++i) {
    if ((shading >> i & 1u) != 0 && intersect(scene.solids[i], point, light, &hit)) return true;
  }
  return false;
}

Vec floor_light(const PosedScene& scene, Vec point, SolidMask shading) {
  const float direct = in_shadow(scene, point, shading) ? 0.0f : kDirect * light_direction().y;
  return floor_albedo(scene, point.x, point.z) * (kAmbient + kAmbientUp + direct);
}

int nearest_solid(const PosedScene& scene, Vec origin, Vec direction, SolidMask seen, Hit* hit) {
  int nearest = -1;
  Hit candidate;
  for (int i = 0; i < scene.count; ++i) {
    if ((seen >> i & 1u) == 0 || !intersect(scene.solids[i], origin, direction, &candidate)) {
      continue;
    }
    if (nearest < 0 || candidate.distance < hit->distance) {
      *hit = candidate;
      nearest = i;
    }
  }
  return nearest;
}

// Light scattered by the surface of solid `index`, and whether the light reaches it.
Vec scattered(const PosedScene& scene, int index, Vec point, Vec normal, bool* lit) {
  const float facing = dot(normal, light_direction());
  const SolidMask others = ~(1u << index);  // a convex solid shades itself only where facing <= 0
  *lit = facing > 0.0f && !in_shadow(scene, point, others);
  const float direct = *lit ? kDirect * facing : 0.0f;
  return scene.solids[index].albedo * (kAmbient + kAmbientUp * normal.y + direct);
}

// What the mirror of solid `index` shows: one bounce, mirrors in the mirror look matte.
Vec mirrored(const PosedScene& scene, int index, Vec point, Vec direction) {
  Hit hit;
  const int other = nearest_solid(scene, point, direction, ~(1u << index), &hit);
  if (other >= 0) {
    bool lit = false;
    return scattered(scene, other, point + direction * hit.distance, hit.normal, &lit);
  }
  if (direction.y < 0.0f) {
    const Vec ground = point - direction * (point.y / direction.y);
    if (ground.z < kTableBack) return floor_light(scene, ground, ~0u);
  }
  return sky(direction);
}

// The edges of a shiny cube are bevelled: there the normal lies halfway between the faces, which
// draws the bright line that tells a small shiny cube from a matte one.
Vec polished_normal(const PosedSolid& solid, Vec point, Vec normal) {
  if (solid.kind != SolidKind::kCube) return normal;
  const float half = solid.measures.radius;
  const float edge = half * (1.0f - kBevel);
  const float c = solid.cos_yaw;
  const float s = solid.sin_yaw;
  const Vec offset = point - Vec{solid.base.x, solid.base.y + half, solid.base.z};
  const float along_x = c * offset.x + s * offset.z;
  const float along_z = c * offset.z - s * offset.x;
  const auto side = [edge](float place) {
    return place > edge ? 1.0f : place < -edge ? -1.0f : 0.0f;
  };
  const float x = side(along_x);
  const float y = side(offset.y);
  const float z = side(along_z);
  if (x * x + y * y + z * z < 1.5f) return normal;
  return normalised({c * x - s * z, y, s * x + c * z});
}

// How strongly the lamp glints. A sphere and flat faces mirror its disc; the side of a cylinder or
// cone mirrors a tall strip lamp of the same azimuth, a streak from top to bottom.
float glint(const PosedSolid& solid, Vec normal, Vec unit) {
  const Vec light = light_direction();
  float toward = 0.0f;
  const bool round_side =
      (solid.kind == SolidKind::kCylinder || solid.kind == SolidKind::kCone) && normal.y < 0.9f;
  if (round_side) {
    const Vec half = normalised({light.x - unit.x, 0.0f, light.z - unit.z});
    toward = dot(normalised({normal.x, 0.0f, normal.z}), half);
  } else {
    toward = dot(normalised(light - unit), normal);
  }
  float power = std::max(0.0f, toward);
  // A power of two, by squaring: no pow, the same bits everywhere. Broad on a cube's narrow edges.
  const int squarings = solid.kind == SolidKind::kCube ? 4 : 6;
  for (int i = 0; i < squarings; ++i) power = power * power;
  return kHighlight * power;
}

Vec shiny_light(const PosedScene& scene, int index, Vec point, Vec normal, Vec unit) {
  const PosedSolid& solid = scene.solids[index];
  const Vec polished = polished_normal(solid, point, normal);
  bool lit = false;
  const Vec body = scattered(scene, index, point, polished, &lit);
  const Vec mirror = unit - polished * (2.0f * dot(unit, polished));
  const Vec plain{1.0f - kTint, 1.0f - kTint, 1.0f - kTint};
  const Vec tint = plain + solid.albedo * kTint;
  Vec light = body * kShinyDiffuse + mirrored(scene, index, point, mirror) * tint * kShinyMirror;
  if (lit) {
    const float white = glint(solid, polished, unit);
    light = light + Vec{white, white, white};
  }
  return light;
}

}  // namespace

Vec light_direction() {
  constexpr float kInverse = 0.80064077f;  // 1 / |(-0.5, 1, -0.555)|, rounded once
  return {-0.5f * kInverse, 1.0f * kInverse, -0.555f * kInverse};
}

bool intersect(const PosedSolid& solid, Vec origin, Vec direction, Hit* hit) {
  switch (solid.kind) {
    case SolidKind::kSphere:
      return intersect_sphere(solid, origin, direction, hit);
    case SolidKind::kCube:
      return intersect_cube(solid, origin, direction, hit);
    case SolidKind::kCylinder:
      return intersect_cylinder(solid, origin, direction, hit);
    case SolidKind::kCone:
      return intersect_cone(solid, origin, direction, hit);
  }
  return false;
}

PosedScene pose(const Scene& scene) {
  PosedScene posed;
  posed.count = narrow<int>(scene.solids.size());
  posed.floor = scene.floor;
  for (int i = 0; i < posed.count; ++i) {
    const Solid& solid = scene.solids[i];
    posed.solids[i] = {solid.kind,
                       measures_of(solid.kind, solid.size),
                       {to_float(solid.x), 0.0f, to_float(solid.z)},
                       kCubeCos,
                       kCubeSin,
                       nth(kAlbedo, solid.colour),
                       solid.material == SolidMaterial::kShiny};
  }
  const auto key = philox_key(scene.seed, 1);
  for (unsigned i = 0; i < posed.noise.size(); i += 4) {
    const PhiloxBlock block =
        philox4x32({i / 4, 0, static_cast<std::uint32_t>(Purpose::kScene), 0}, key);
    for (unsigned lane = 0; lane < 4; ++lane) {
      posed.noise[i + lane] = 1.0f + kFloorNoise * (2.0f * uniform_open(block[lane]) - 1.0f);
    }
  }
  return posed;
}

Vec radiance(const PosedScene& scene, Vec eye, Vec direction, SolidMask seen, SolidMask shading) {
  Hit hit;
  const int index = seen != 0 ? nearest_solid(scene, eye, direction, seen, &hit) : -1;
  if (index < 0) {
    const float distance = -eye.y / direction.y;
    const Vec ground{eye.x + direction.x * distance, 0.0f, eye.z + direction.z * distance};
    if (direction.y < 0.0f && ground.z < kTableBack) return floor_light(scene, ground, shading);
    return sky(normalised(direction));
  }
  const Vec point = eye + direction * hit.distance;
  if (scene.solids[index].shiny) {
    return shiny_light(scene, index, point, hit.normal, normalised(direction));
  }
  bool lit = false;
  return scattered(scene, index, point, hit.normal, &lit);
}

}  // namespace tessera::world
