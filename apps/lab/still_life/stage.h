// A still life made ready to be seen: where things stand, what light there is, the camera. Internal
// to apps/lab/still_life. Only +, -, *, / and square root of IEEE floats, so that every machine
// agrees on every bit.
#pragma once

#include <array>

#include "apps/lab/scene/tracer.h"
#include "apps/lab/still_life/lattice.h"
#include "apps/lab/still_life/still_life.h"

namespace tessera::still {

inline constexpr float kScale = 1.2f;      // radius of a large sphere
inline constexpr float kTableBack = 7.0f;  // the table ends at this z
inline constexpr double kMaxX = 2.6;       // centres of objects stay inside
inline constexpr double kMaxZ = 2.4;
inline constexpr float kLargeThing = 2.5f;  // height, or width of what is wider than high
inline constexpr float kSmallThing = 1.55f;
inline constexpr double kGroundGap = 0.1;

using world::Camera;
using world::Projected;
Camera view();
Vec ray_through(const Camera& view, float u, float v);

// Room an object takes: a circle on the table, and what the camera sees of it.
struct Extent {
  float ground_radius;
  float height;
  float half_width;
};
Extent extent_of(const Object& object, const Things& things);
bool apart_on_table(const Object& a, const Object& b, const Things& things, double gap);
// Where the middle of an object appears, -1 to 1; objects are listed by it.
float screen_x(const Object& object, const Things& things);
void order_left_to_right(std::vector<Object>* objects, const Things& things);

struct PosedObject {
  const Thing* thing;       // null: a solid
  world::PosedSolid solid;  // its shape; of a thing only `base`
  Vec base;                 // centre of the bottom
  float half_width, height;
  bool mirrored;
  Surface surface;
  Colour colour;
  Vec offset;  // in the lattice
};

// Light of a scene. Directions point towards the lamp.
struct Air {
  Vec lamp;
  Vec lamp_side, lamp_up;  // unit vectors across it, for points of a lamp that is not a point
  float lamp_radius;       // tangent of the half angle under which it is seen
  Vec direct, ambient;     // linear light
  Vec sky_low, sky_high, cloud, hills;
  float cloudiness;  // 0 to 1
  float phase;       // of the backdrop in the lattice
};

struct Stage {
  explicit Stage(const StillLife& scene, const Things& things);
  Lattice lattice;
  Camera view;
  Air air;
  Sky sky;
  Surface table;
  Colour table_colour;
  Vec table_offset;
  float table_cos, table_sin;  // the pattern of the table is turned
  std::array<PosedObject, kMaxObjects> objects;
  int count;
  Things things;  // keeps the cut-outs alive
};

// A ray meets an object: how far, in what direction the surface looks, how much of it is there.
struct Meeting {
  float distance;
  Vec normal;
  float alpha;  // 1 for solids
  Vec colour;   // of a thing: premultiplied
  int face;     // tells the sides of a solid apart
};
// `footprint`: width of a pixel at one unit of distance.
bool meet(const PosedObject& object, Vec origin, Vec direction, float footprint, Meeting* meeting);

// Share of light that passes the object on its way from `point` to the lamp in `direction`. The
// cut-out of a thing faces the lamp, so that its shadow has its shape.
float passing(const PosedObject& object, Vec point, Vec direction);

}  // namespace tessera::still
