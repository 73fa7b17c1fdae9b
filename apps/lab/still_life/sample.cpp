// Draws still lifes: attributes first, then places by rejection until each object can be told
// apart. Every scene has a seed of its own, from (set seed, split, index); all its draws come from
// it.
#include <algorithm>

#include "apps/lab/scene/dice.h"
#include "apps/lab/still_life/render.h"
#include "apps/lab/still_life/stage.h"
#include "engine/core/index.h"

namespace tessera::still {
namespace {

constexpr int kPlacesTried = 60;  // before sizes are drawn again
constexpr int kShareSide = 64;
constexpr double kShareWanted = 0.72;  // at kShareSide; leaves a margin for other sizes
constexpr float kFrame = 0.96f;
constexpr float kMinScreenGap = 0.30f;  // between neighbours' middles; an image is 2 wide

constexpr std::array<SolidKind, 4> kKinds = {SolidKind::kSphere, SolidKind::kCube,
                                             SolidKind::kCylinder, SolidKind::kCone};
constexpr std::array<Colour, kColours> kAllColours = {
    Colour::kRed,    Colour::kOrange, Colour::kYellow, Colour::kGreen, Colour::kBlue,
    Colour::kPurple, Colour::kBrown,  Colour::kGray,   Colour::kWhite, Colour::kBlack};
constexpr std::array<Surface, kSurfaces> kAllSurfaces = {Surface::kPlain,  Surface::kWood,
                                                         Surface::kMarble, Surface::kCloth,
                                                         Surface::kMetal,  Surface::kSpeckled};
constexpr std::array<Sky, kSkies> kAllSkies = {Sky::kClear, Sky::kCloudy, Sky::kSunset,
                                               Sky::kNight};
constexpr std::array<Lamp, kLamps> kAllLamps = {Lamp::kLeft, Lamp::kRight, Lamp::kFront};

template <typename List>
auto one_of(Dice& dice, const List& list) {
  return nth(list, dice.below(narrow<int>(std::size(list))));
}

Object draw_object(Dice& dice, const Things& things) {
  Object object;
  if (!things.empty() && dice.below(20) < 11) {
    object.thing = things[dice.below(things.size())].name;
    object.mirrored = dice.below(2) == 1;
    return object;
  }
  object.kind = one_of(dice, kKinds);
  object.colour = one_of(dice, kAllColours);
  object.surface = one_of(dice, kAllSurfaces);
  object.turn = dice.below(kTurns);
  return object;
}

bool same_look(const Object& a, const Object& b) {
  return a.thing == b.thing && a.kind == b.kind && a.colour == b.colour && a.surface == b.surface;
}

void draw_objects(Dice& dice, SceneSplit split, int count, const Things& things, StillLife* scene) {
  const int held_out = split == SceneSplit::kHoldout ? dice.below(count) : -1;
  std::vector<Object>& objects = scene->objects;
  while (narrow<int>(objects.size()) < count) {
    const Object object = draw_object(dice, things);
    const bool wanted = narrow<int>(objects.size()) == held_out;
    if (is_holdout(object, scene->table, scene->sky) != wanted) continue;
    const bool again = std::any_of(objects.begin(), objects.end(),
                                   [&](const Object& other) { return same_look(object, other); });
    if (!again) objects.push_back(object);
  }
}

bool inside_frame(const Object& object, const Things& things) {
  const Extent extent = extent_of(object, things);
  const float x = to_float(object.x);
  const float front = to_float(object.z) - (object.thing.empty() ? extent.ground_radius : 0.0f);
  const Camera camera = view();
  const Projected top = project(camera, {x, extent.height, to_float(object.z)});
  const Projected bottom = project(camera, {x, 0.0f, front});
  // What is nearer to the camera looks wider: the front, at the top.
  const Projected left = project(camera, {x - extent.half_width, extent.height, front});
  const Projected right = project(camera, {x + extent.half_width, extent.height, front});
  return left.u >= -kFrame && right.u <= kFrame && bottom.v >= -kFrame && top.v <= kFrame;
}

bool well_placed(const std::vector<Object>& objects, const Things& things) {
  for (std::size_t i = 0; i < objects.size(); ++i) {
    if (!inside_frame(objects[i], things)) return false;
    for (std::size_t j = i + 1; j < objects.size(); ++j) {
      const float gap = screen_x(objects[i], things) - screen_x(objects[j], things);
      if (gap < kMinScreenGap && gap > -kMinScreenGap) return false;
      if (!apart_on_table(objects[i], objects[j], things, kGroundGap)) return false;
    }
  }
  return true;
}

bool place(Dice& dice, const Things& things, StillLife* scene) {
  for (Object& object : scene->objects) {
    object.size = dice.below(2) == 0 ? SolidSize::kSmall : SolidSize::kLarge;
  }
  for (int tried = 0; tried < kPlacesTried; ++tried) {
    for (Object& object : scene->objects) {
      object.x = dice.place(to_float(kMaxX));
      object.z = dice.place(to_float(kMaxZ));
    }
    if (!well_placed(scene->objects, things)) continue;
    const std::vector<double> shares = visible_shares(*scene, things, kShareSide);
    if (*std::min_element(shares.begin(), shares.end()) >= kShareWanted) return true;
  }
  return false;
}

}  // namespace

StillLife sample_still_life(std::uint64_t seed, SceneSplit split, std::uint64_t index,
                            const Things& things) {
  StillLife scene;
  scene.seed = drawn_seed(DrawnKind::kStillLife, seed, split, index);
  Dice dice(scene.seed);
  scene.table = one_of(dice, kAllSurfaces);
  scene.table_colour = one_of(dice, table_colours());
  scene.sky = one_of(dice, kAllSkies);
  scene.lamp = one_of(dice, kAllLamps);
  // One to four, two and three most often.
  constexpr std::array<int, 8> kCounts = {1, 1, 2, 2, 2, 3, 3, 4};
  draw_objects(dice, split, one_of(dice, kCounts), things, &scene);
  // Four small objects fit in many ways, so this ends.
  while (!place(dice, things, &scene)) {
  }
  order_left_to_right(&scene.objects, things);
  return scene;
}

}  // namespace tessera::still
