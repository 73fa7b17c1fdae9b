#include "apps/lab/scene/scene.h"

#include <algorithm>

#include "engine/core/error.h"
#include "engine/core/index.h"

namespace tessera {
namespace {

constexpr std::array<std::string_view, kSolidKinds> kKindNames = {"sphere", "cube", "cylinder",
                                                                  "cone"};
constexpr std::array<std::string_view, kSolidColours> kColourNames = {
    "red", "green", "blue", "yellow", "purple", "cyan", "orange", "white"};
constexpr std::array<std::string_view, kSolidSizes> kSizeNames = {"small", "large"};
constexpr std::array<std::string_view, kSolidMaterials> kMaterialNames = {"matte", "shiny"};
constexpr std::array<std::string_view, kFloorKinds> kFloorNames = {"gray", "brown", "dark",
                                                                   "checkered"};
constexpr std::array<std::string_view, 3> kSplitNames = {"train", "val", "holdout"};

// Every colour loses one of its eight (material, kind) pairs, every kind two of sixteen, every
// material four of thirty-two: all are as common as their neighbours in training.
constexpr std::array<HoldoutCombination, 8> kHoldout = {{
    {SolidColour::kRed, SolidMaterial::kShiny, SolidKind::kCylinder},
    {SolidColour::kGreen, SolidMaterial::kMatte, SolidKind::kCone},
    {SolidColour::kBlue, SolidMaterial::kShiny, SolidKind::kCube},
    {SolidColour::kYellow, SolidMaterial::kMatte, SolidKind::kCylinder},
    {SolidColour::kPurple, SolidMaterial::kMatte, SolidKind::kSphere},
    {SolidColour::kCyan, SolidMaterial::kShiny, SolidKind::kCone},
    {SolidColour::kOrange, SolidMaterial::kShiny, SolidKind::kSphere},
    {SolidColour::kWhite, SolidMaterial::kMatte, SolidKind::kCube},
}};

}  // namespace

std::span<const std::string_view> kind_names() { return kKindNames; }
std::span<const std::string_view> colour_names() { return kColourNames; }
std::span<const std::string_view> size_names() { return kSizeNames; }
std::span<const std::string_view> material_names() { return kMaterialNames; }
std::span<const std::string_view> floor_names() { return kFloorNames; }
std::span<const std::string_view> split_names() { return kSplitNames; }

std::string_view name_of(SolidKind kind) { return nth(kKindNames, kind); }
std::string_view name_of(SolidColour colour) { return nth(kColourNames, colour); }
std::string_view name_of(SolidSize size) { return nth(kSizeNames, size); }
std::string_view name_of(SolidMaterial material) { return nth(kMaterialNames, material); }
std::string_view name_of(FloorKind floor) { return nth(kFloorNames, floor); }
std::string_view name_of(SceneSplit split) { return nth(kSplitNames, split); }

SceneSplit parse_split(std::string_view text, std::string_view where) {
  const auto found = std::find(kSplitNames.begin(), kSplitNames.end(), text);
  if (found == kSplitNames.end()) {
    throw Error{{.kind = ErrorKind::kUsage,
                 .code = "E_SCENE_SPLIT",
                 .file = {},
                 .where = std::string(where),
                 .expected = "train, val or holdout",
                 .found = "\"" + std::string(text) + "\"",
                 .hint = {}}};
  }
  return static_cast<SceneSplit>(found - kSplitNames.begin());
}

std::span<const HoldoutCombination> holdout_combinations() { return kHoldout; }

bool is_holdout(const Solid& solid) {
  return std::any_of(kHoldout.begin(), kHoldout.end(), [&](const HoldoutCombination& combination) {
    return combination.colour == solid.colour && combination.material == solid.material &&
           combination.kind == solid.kind;
  });
}

bool has_holdout(const Scene& scene) {
  return std::any_of(scene.solids.begin(), scene.solids.end(), is_holdout);
}

}  // namespace tessera
