#include "apps/lab/scene/dice.h"

#include <algorithm>

#include "apps/lab/scene/word_reader.h"
#include "engine/core/error.h"
#include "engine/core/index.h"

namespace tessera {

namespace {

bool same_look(const Solid& a, const Solid& b) {
  return a.kind == b.kind && a.colour == b.colour && a.size == b.size && a.material == b.material;
}

// Uniform over the combinations that training may see.
Solid draw_known(Dice& dice) {
  Solid solid;
  do {
    solid.kind = enum_at<SolidKind>(dice.below(kSolidKinds));
    solid.colour = enum_at<SolidColour>(dice.below(kSolidColours));
    solid.material = enum_at<SolidMaterial>(dice.below(kSolidMaterials));
  } while (is_holdout(solid));
  solid.size = enum_at<SolidSize>(dice.below(kSolidSizes));
  return solid;
}

Solid draw_held_out(Dice& dice) {
  const auto combinations = holdout_combinations();
  const HoldoutCombination& drawn = combinations[dice.below(narrow<int>(combinations.size()))];
  Solid solid;
  solid.kind = drawn.kind;
  solid.colour = drawn.colour;
  solid.material = drawn.material;
  solid.size = enum_at<SolidSize>(dice.below(kSolidSizes));
  return solid;
}

}  // namespace

std::uint64_t drawn_seed(DrawnKind kind, std::uint64_t seed, SceneSplit split,
                         std::uint64_t index) {
  const PhiloxBlock block =
      philox4x32({low_bits<std::uint32_t>(index), low_bits<std::uint32_t>(index >> 32),
                  static_cast<std::uint32_t>(Purpose::kScene),
                  static_cast<std::uint32_t>(kind) + static_cast<std::uint32_t>(split)},
                 philox_key(seed, 0));
  return std::uint64_t{block[0]} << 32 | block[1];
}

std::vector<Solid> draw_solids(Dice& dice, SceneSplit split, int count) {
  const int held_out = split == SceneSplit::kHoldout ? dice.below(count) : -1;
  std::vector<Solid> solids;
  while (narrow<int>(solids.size()) < count) {
    const Solid solid =
        narrow<int>(solids.size()) == held_out ? draw_held_out(dice) : draw_known(dice);
    const bool again = std::any_of(solids.begin(), solids.end(),
                                   [&](const Solid& other) { return same_look(solid, other); });
    if (!again) solids.push_back(solid);
  }
  return solids;
}

bool inside_frame(const Solid& solid, const world::Camera& view) {
  const world::Measures measures = world::measures_of(solid.kind, solid.size);
  const float x = to_float(solid.x);
  const float front = to_float(solid.z) - measures.ground_radius;
  const float left = world::project(view, {x - measures.ground_radius, 0.0f, front}).u;
  const float right = world::project(view, {x + measures.ground_radius, 0.0f, front}).u;
  return left >= -kFrame && right <= kFrame;
}

}  // namespace tessera
