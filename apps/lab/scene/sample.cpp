// Draws scenes: attributes first, uniformly, then places by rejection until every solid can be told
// apart. Each scene has a seed of its own, from (set seed, split, index); all its draws come from
// it.
#include <algorithm>

#include "apps/lab/scene/dice.h"
#include "apps/lab/scene/geometry.h"
#include "apps/lab/scene/render.h"
#include "apps/lab/scene/scene.h"

namespace tessera {
namespace {

constexpr int kPlacesTried = 400;

bool well_placed(const std::vector<Solid>& solids) {
  const world::Camera view = world::camera();
  for (std::size_t i = 0; i < solids.size(); ++i) {
    if (!inside_frame(solids[i], view)) return false;
    for (std::size_t j = i + 1; j < solids.size(); ++j) {
      const float gap = world::screen_x(solids[i]) - world::screen_x(solids[j]);
      if (gap < kMinScreenGap && gap > -kMinScreenGap) return false;
      if (!world::apart_on_ground(solids[i], solids[j], world::kGroundGap)) return false;
    }
  }
  return true;
}

bool place(Dice& dice, Scene* scene) {
  for (int tried = 0; tried < kPlacesTried; ++tried) {
    for (Solid& solid : scene->solids) {
      solid.x = dice.place(world::kMaxX);
      solid.z = dice.place(world::kMaxZ);
    }
    if (!well_placed(scene->solids)) continue;
    const std::vector<double> shares = visible_shares(*scene, kShareSide);
    if (*std::min_element(shares.begin(), shares.end()) >= kShareWanted) return true;
  }
  return false;
}

}  // namespace

Scene sample_scene(std::uint64_t seed, SceneSplit split, std::uint64_t index) {
  Scene scene;
  scene.seed = drawn_seed(DrawnKind::kScene, seed, split, index);
  Dice dice(scene.seed);
  scene.floor = static_cast<FloorKind>(dice.below(kFloorKinds));
  const int count = 1 + dice.below(kMaxSolids);
  scene.solids = draw_solids(dice, split, count);
  // Every set of solids has places (the table is wide enough for four large ones), so this ends.
  while (!place(dice, &scene)) {
  }
  world::order_left_to_right(&scene.solids);
  return scene;
}

}  // namespace tessera
