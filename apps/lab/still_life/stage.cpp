#include "apps/lab/still_life/stage.h"

#include <algorithm>
#include <cmath>

#include "apps/lab/scene/dice.h"
#include "apps/lab/still_life/surfaces.h"
#include "engine/core/index.h"

namespace tessera::still {
namespace {

using world::normalised;
using world::project;

constexpr Vec kEye{0.0f, 5.6f, -13.0f};
constexpr Vec kLookAt{0.0f, 1.0f, 0.4f};
constexpr float kTanHalf = 0.235f;
constexpr float kSharpest = 1.4f;  // pixels of a cut-out in a pixel of the image

// Uniform in [0, 1].
float unit(Dice& dice) { return to_float(dice.below(65536)) * (1.0f / 65535.0f); }
float between(Dice& dice, float low, float high) { return low + (high - low) * unit(dice); }

// Cosine and sine of an angle between 0 and a quarter turn, t in [0, 1], without trigonometry.
struct Angle {
  float cos, sin;
};
Angle quarter(float t) {
  const float scale = 1.0f / (1.0f + t * t);
  return {(1.0f - t * t) * scale, 2.0f * t * scale};
}

Vec lamp_direction(Lamp lamp, Sky sky, Dice& dice) {
  const float height =
      sky == Sky::kSunset ? between(dice, 0.42f, 0.58f) : between(dice, 0.75f, 1.25f);
  const float side = between(dice, 0.75f, 1.0f);
  switch (lamp) {
    case Lamp::kLeft:
      return normalised({-side, height, between(dice, -0.5f, -0.1f)});
    case Lamp::kRight:
      return normalised({side, height, between(dice, -0.5f, -0.1f)});
    case Lamp::kFront:
      break;
  }
  return normalised({between(dice, -0.22f, 0.22f), height, -side});
}

// Light and colours under each sky, in linear light.
struct SkyLook {
  float lamp_radius;
  Vec direct, ambient, low, high, cloud, hills;
  float min_clouds, max_clouds;
};
constexpr std::array<SkyLook, kSkies> kSkyLooks = {{
    // clear
    {0.05f,
     {0.82f, 0.79f, 0.72f},
     {0.27f, 0.30f, 0.35f},
     {0.72f, 0.85f, 0.95f},
     {0.10f, 0.33f, 0.80f},
     {0.96f, 0.97f, 0.98f},
     {0.10f, 0.24f, 0.12f},
     0.10f,
     0.28f},
    // cloudy
    {0.22f,
     {0.42f, 0.42f, 0.43f},
     {0.46f, 0.47f, 0.49f},
     {0.60f, 0.64f, 0.68f},
     {0.30f, 0.35f, 0.42f},
     {0.78f, 0.80f, 0.82f},
     {0.10f, 0.17f, 0.13f},
     0.75f,
     0.95f},
    // sunset
    {0.08f,
     {1.00f, 0.66f, 0.36f},
     {0.30f, 0.25f, 0.31f},
     {0.98f, 0.52f, 0.14f},
     {0.26f, 0.14f, 0.36f},
     {0.92f, 0.30f, 0.22f},
     {0.09f, 0.05f, 0.09f},
     0.3f,
     0.6f},
    // night
    {0.07f,
     {0.50f, 0.56f, 0.70f},
     {0.16f, 0.18f, 0.27f},
     {0.05f, 0.08f, 0.20f},
     {0.005f, 0.01f, 0.05f},
     {0.10f, 0.12f, 0.20f},
     {0.006f, 0.010f, 0.016f},
     0.0f,
     0.25f},
}};

Air air_of(const StillLife& scene, Dice& dice) {
  Air air{};
  air.lamp = lamp_direction(scene.lamp, scene.sky, dice);
  air.lamp_side = normalised({air.lamp.z, 0.0f, -air.lamp.x});
  air.lamp_up = {air.lamp.y * air.lamp_side.z,
                 air.lamp.z * air.lamp_side.x - air.lamp.x * air.lamp_side.z,
                 -air.lamp.y * air.lamp_side.x};
  air.phase = between(dice, 0.0f, 31.0f);
  const float strength = between(dice, 0.92f, 1.06f);
  const SkyLook& look = nth(kSkyLooks, scene.sky);
  air.lamp_radius = look.lamp_radius;
  air.direct = look.direct * strength;
  air.ambient = look.ambient;
  air.sky_low = look.low;
  air.sky_high = look.high;
  air.cloud = look.cloud;
  air.hills = look.hills;
  air.cloudiness = between(dice, look.min_clouds, look.max_clouds);
  return air;
}

Vec random_offset(Dice& dice) {
  const float x = between(dice, 0.0f, 31.0f);
  const float y = between(dice, 0.0f, 31.0f);
  return {x, y, between(dice, 0.0f, 31.0f)};
}

PosedObject pose_object(const Object& object, const Things& things, Dice& dice) {
  PosedObject posed{};
  const Extent extent = extent_of(object, things);
  posed.base = {to_float(object.x), 0.0f, to_float(object.z)};
  posed.half_width = extent.half_width;
  posed.height = extent.height;
  posed.offset = random_offset(dice);
  posed.solid.base = posed.base;
  if (!object.thing.empty()) {
    posed.thing = things.find(object.thing);
    posed.mirrored = object.mirrored;
    return posed;
  }
  world::Measures measures = world::measures_of(object.kind, object.size);
  measures = {measures.radius * kScale, measures.height * kScale, measures.ground_radius * kScale};
  const Angle turn = quarter(to_float(object.turn) * (1.0f / kTurns));
  posed.solid.kind = object.kind;
  posed.solid.measures = measures;
  posed.solid.cos_yaw = turn.cos;
  posed.solid.sin_yaw = turn.sin;
  posed.surface = object.surface;
  posed.colour = object.colour;
  return posed;
}

struct Pixel {
  Vec colour;
  float alpha;
};

// (s, t) in [0, 1] from the top left corner; between pixels, blended.
Pixel pixel_of(const ThingLevel& level, float s, float t) {
  const float x = s * to_float(level.width) + 4095.5f;  // so that truncating rounds downwards
  const float y = t * to_float(level.height) + 4095.5f;
  const int column = truncate<int>(x) - 4096;
  const int row = truncate<int>(y) - 4096;
  const float across = x - 4096.0f - to_float(column);
  const float down = y - 4096.0f - to_float(row);
  Pixel sum{{0.0f, 0.0f, 0.0f}, 0.0f};
  for (int corner = 0; corner < 4; ++corner) {
    const int i = column + (corner & 1);
    const int j = row + (corner >> 1);
    if (i < 0 || j < 0 || i >= level.width || j >= level.height) continue;
    const float share =
        ((corner & 1) != 0 ? across : 1.0f - across) * ((corner & 2) != 0 ? down : 1.0f - down);
    const float* rgba = &level.rgba[to_size(j * level.width + i) * 4];
    sum.colour = sum.colour + Vec{rgba[0], rgba[1], rgba[2]} * share;
    sum.alpha += rgba[3] * share;
  }
  return sum;
}

const ThingLevel& level_for(const Thing& thing, float pixels_of_cut_out) {
  std::size_t level = 0;
  while (pixels_of_cut_out > kSharpest && level + 1 < thing.levels.size()) {
    pixels_of_cut_out *= 0.5f;
    ++level;
  }
  return thing.levels[level];
}

bool meet_thing(const PosedObject& object, Vec origin, Vec direction, float footprint,
                Meeting* meeting) {
  const float distance = (object.base.z - origin.z) / direction.z;
  if (!(distance > 1e-3f)) return false;
  const float x = origin.x + direction.x * distance - object.base.x;
  const float y = origin.y + direction.y * distance;
  if (x < -object.half_width || x > object.half_width || y < 0.0f || y > object.height)
    return false;
  const float s = 0.5f + 0.5f * (object.mirrored ? -x : x) / object.half_width;
  const float density = to_float(object.thing->levels.front().height) / object.height;
  const ThingLevel& level = level_for(*object.thing, density * footprint * distance);
  const Pixel pixel = pixel_of(level, s, 1.0f - y / object.height);
  if (pixel.alpha < 0.02f) return false;
  *meeting = {distance, {0.0f, 0.0f, -1.0f}, pixel.alpha, pixel.colour, 0};
  return true;
}

int face_of(const world::PosedSolid& solid, Vec normal) {
  switch (solid.kind) {
    case SolidKind::kCube:
      if (normal.y > 0.5f) return 1;
      return std::abs(normal.x * solid.cos_yaw + normal.z * solid.sin_yaw) > 0.5f ? 2 : 3;
    case SolidKind::kCylinder:
      return normal.y > 0.5f ? 1 : 0;
    case SolidKind::kSphere:
    case SolidKind::kCone:
      break;
  }
  return 0;
}

float passing_thing(const PosedObject& object, Vec point, Vec direction) {
  // The upright plane through the object's middle that faces the lamp, seen from above.
  const float flat = std::sqrt(direction.x * direction.x + direction.z * direction.z);
  if (flat < 1e-4f) return 1.0f;
  const float nx = direction.x / flat;
  const float nz = direction.z / flat;
  const float distance = ((object.base.x - point.x) * nx + (object.base.z - point.z) * nz) / flat;
  if (distance <= 1e-3f) return 1.0f;
  const float y = point.y + direction.y * distance;
  const float x = (point.x + direction.x * distance - object.base.x) * -nz +
                  (point.z + direction.z * distance - object.base.z) * nx;
  if (x < -object.half_width || x > object.half_width || y < 0.0f || y > object.height) return 1.0f;
  const float s = 0.5f + 0.5f * (object.mirrored ? -x : x) / object.half_width;
  const ThingLevel& level =
      level_for(*object.thing, to_float(object.thing->levels[0].height) / 32.0f);
  return std::max(0.0f, 1.0f - pixel_of(level, s, 1.0f - y / object.height).alpha);
}

}  // namespace

Camera view() {
  const Vec forward = normalised(kLookAt - kEye);
  return {forward, {1.0f, 0.0f, 0.0f}, {0.0f, forward.z, -forward.y}, kEye, kTanHalf};
}

Vec ray_through(const Camera& view, float u, float v) {
  return view.forward + view.right * (u * view.tan_half) + view.up * (v * view.tan_half);
}

Extent extent_of(const Object& object, const Things& things) {
  if (object.thing.empty()) {
    const world::Measures measures = world::measures_of(object.kind, object.size);
    return {measures.ground_radius * kScale, measures.height * kScale,
            measures.ground_radius * kScale};
  }
  const Thing* thing = things.find(object.thing);
  expects(thing != nullptr, "a thing of the pack");
  const float side = object.size == SolidSize::kLarge ? kLargeThing : kSmallThing;
  const float aspect = thing->aspect();
  const float width = aspect < 1.0f ? side * aspect : side;
  return {0.4f * width, width / aspect, 0.5f * width};
}

bool apart_on_table(const Object& a, const Object& b, const Things& things, double gap) {
  const double reach = to_double(extent_of(a, things).ground_radius) +
                       to_double(extent_of(b, things).ground_radius) + gap;
  const double x = a.x - b.x;
  const double z = a.z - b.z;
  return x * x + z * z > reach * reach;
}

float screen_x(const Object& object, const Things& things) {
  const float height = extent_of(object, things).height;
  return project(view(), {to_float(object.x), 0.5f * height, to_float(object.z)}).u;
}

void order_left_to_right(std::vector<Object>* objects, const Things& things) {
  std::stable_sort(objects->begin(), objects->end(), [&](const Object& a, const Object& b) {
    return screen_x(a, things) < screen_x(b, things);
  });
}

Stage::Stage(const StillLife& scene, const Things& pack)
    : lattice(scene.seed),
      view(still::view()),
      sky(scene.sky),
      table(scene.table),
      table_colour(scene.table_colour),
      count(narrow<int>(scene.objects.size())),
      things(pack) {
  Dice dice(scene.seed ^ 0x5354494c4c4c4946u);  // unlike those that drew the scene
  air = air_of(scene, dice);
  table_offset = random_offset(dice);
  const Angle turn = quarter(unit(dice) * 0.3f);
  table_cos = turn.cos;
  table_sin = dice.below(2) == 0 ? turn.sin : -turn.sin;
  for (int i = 0; i < count; ++i) {
    nth(objects, i) = pose_object(nth(scene.objects, i), things, dice);
  }
}

bool meet(const PosedObject& object, Vec origin, Vec direction, float footprint, Meeting* meeting) {
  if (object.thing != nullptr) return meet_thing(object, origin, direction, footprint, meeting);
  world::Hit hit;
  if (!world::intersect(object.solid, origin, direction, &hit)) return false;
  *meeting = {hit.distance, hit.normal, 1.0f, {}, face_of(object.solid, hit.normal)};
  return true;
}

float passing(const PosedObject& object, Vec point, Vec direction) {
  if (object.thing != nullptr) return passing_thing(object, point, direction);
  world::Hit hit;
  return world::intersect(object.solid, point, direction, &hit) ? 0.0f : 1.0f;
}

}  // namespace tessera::still
