// Draws scenes: attributes first, uniformly, then places by rejection until every solid can be told
// apart. Each scene has a seed of its own, from (set seed, split, index); all its draws come from
// it.
#include <algorithm>

#include "engine/core/error.h"
#include "engine/core/philox.h"
#include "vision/scene/geometry.h"
#include "vision/scene/render.h"
#include "vision/scene/scene.h"

namespace tessera {
namespace {

constexpr float kFrame = 0.97f;           // silhouettes stay inside this part of the picture
constexpr float kLeastScreenGap = 0.26f;  // between neighbours' centres; the picture is 2 wide
constexpr int kShareSide = 64;            // pictures on which the share in sight is measured
constexpr double kShareWanted = 0.72;     // there; leaves a margin for other picture sizes
constexpr int kPlacesTried = 400;

// Numbers of one scene, in the order asked for. Local to one call: no generator is ever shared.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : key_(philox_key(seed, 0)) {}

  // Uniform in [0, count), count <= 2^16: the bias is below 2^-16.
  int below(int count) {
    return static_cast<int>(std::uint64_t{next()} * static_cast<std::uint64_t>(count) >> 32);
  }

  // A multiple of 1/100 in [-limit, limit].
  double place(float limit) {
    const int steps = static_cast<int>(limit * 100.0f + 0.5f);
    return static_cast<double>(below(2 * steps + 1) - steps) / 100.0;
  }

 private:
  std::uint32_t next() {
    if (lane_ == 4) {
      block_ = philox4x32({counter_++, 0, static_cast<std::uint32_t>(Purpose::kScene), 0}, key_);
      lane_ = 0;
    }
    return block_[lane_++];
  }

  std::array<std::uint32_t, 2> key_;
  PhiloxBlock block_{};
  std::uint32_t counter_ = 0;
  unsigned lane_ = 4;
};

std::uint64_t scene_seed(std::uint64_t seed, SceneSplit split, std::uint64_t index) {
  const PhiloxBlock block =
      philox4x32({static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32),
                  static_cast<std::uint32_t>(Purpose::kScene), static_cast<std::uint32_t>(split)},
                 philox_key(seed, 0));
  return std::uint64_t{block[0]} << 32 | block[1];
}

bool same_look(const Solid& a, const Solid& b) {
  return a.kind == b.kind && a.colour == b.colour && a.size == b.size && a.material == b.material;
}

// Uniform over the combinations that training may see.
Solid draw_known(Dice& dice) {
  Solid solid;
  do {
    solid.kind = static_cast<SolidKind>(dice.below(kSolidKinds));
    solid.colour = static_cast<SolidColour>(dice.below(kSolidColours));
    solid.material = static_cast<SolidMaterial>(dice.below(kSolidMaterials));
  } while (is_holdout(solid));
  solid.size = static_cast<SolidSize>(dice.below(kSolidSizes));
  return solid;
}

Solid draw_held_out(Dice& dice) {
  const auto combinations = holdout_combinations();
  const HoldoutCombination& drawn = combinations[dice.below(static_cast<int>(combinations.size()))];
  Solid solid;
  solid.kind = drawn.kind;
  solid.colour = drawn.colour;
  solid.material = drawn.material;
  solid.size = static_cast<SolidSize>(dice.below(kSolidSizes));
  return solid;
}

// Attributes of `count` solids, no two alike, exactly one of them held out if the split says so.
std::vector<Solid> draw_solids(Dice& dice, SceneSplit split, int count) {
  const int held_out = split == SceneSplit::kHoldout ? dice.below(count) : -1;
  std::vector<Solid> solids;
  while (static_cast<int>(solids.size()) < count) {
    const Solid solid =
        static_cast<int>(solids.size()) == held_out ? draw_held_out(dice) : draw_known(dice);
    const bool again = std::any_of(solids.begin(), solids.end(),
                                   [&](const Solid& other) { return same_look(solid, other); });
    if (!again) solids.push_back(solid);
  }
  return solids;
}

bool inside_frame(const Solid& solid) {
  const world::Camera view = world::camera();
  const world::Measures measures = world::measures_of(solid.kind, solid.size);
  const float x = static_cast<float>(solid.x);
  const float front = static_cast<float>(solid.z) - measures.ground_radius;
  const float left = world::project(view, {x - measures.ground_radius, 0.0f, front}).u;
  const float right = world::project(view, {x + measures.ground_radius, 0.0f, front}).u;
  return left >= -kFrame && right <= kFrame;
}

bool well_placed(const std::vector<Solid>& solids) {
  for (std::size_t i = 0; i < solids.size(); ++i) {
    if (!inside_frame(solids[i])) return false;
    for (std::size_t j = i + 1; j < solids.size(); ++j) {
      const float gap = world::screen_x(solids[i]) - world::screen_x(solids[j]);
      if (gap < kLeastScreenGap && gap > -kLeastScreenGap) return false;
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
  scene.seed = scene_seed(seed, split, index);
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
