// What can be right or wrong about an image of the tabletop world: the attributes of a scene
// without its places, and the marks one set of attributes earns against another.
#pragma once

#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "apps/lab/scene/scene.h"
#include "engine/core/index.h"

namespace tessera {

struct SolidAttributes {
  SolidKind kind = SolidKind::kSphere;
  SolidColour colour = SolidColour::kRed;
  SolidSize size = SolidSize::kLarge;
  SolidMaterial material = SolidMaterial::kMatte;
  auto operator<=>(const SolidAttributes&) const = default;
};

struct SceneAttributes {
  FloorKind floor = FloorKind::kGray;
  std::vector<SolidAttributes> solids;  // left to right
  bool operator==(const SceneAttributes&) const = default;
};

SceneAttributes attributes_of(const Scene& scene);

// The columns of an evaluation, in the order of the table.
enum class Mark : std::uint8_t { kCount, kFloor, kKind, kColour, kSize, kMaterial, kOrder, kScene };
inline constexpr std::size_t kMarks = 8;
std::string_view name_of(Mark mark);

// A mark that was not asked.
inline constexpr double kNotAsked = -1.0;

// Marks of one image in [0, 1], or kNotAsked. Count and floor: right or wrong. Kind, colour,
// size, material: the share of the truth's solids whose place from the left shows the right one.
// Order: asked only where the solids as a set are right; whether they also stand in the right
// order. Scene: everything right.
struct Marks {
  std::array<double, kMarks> value{};
  double operator[](Mark mark) const { return nth(value, mark); }
};
Marks score_scene(const SceneAttributes& seen, const SceneAttributes& truth);

// The same; nothing is right where nothing was seen.
Marks score_seen(const std::optional<SceneAttributes>& seen, const SceneAttributes& truth);

}  // namespace tessera
