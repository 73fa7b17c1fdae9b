// The tabletop world as a value: one to four solids on a floor. A scene is plain data, read from
// and written to JSON, or drawn from (seed, split, index) by addressed random numbers, so that any
// scene of any set can be made alone, on any machine, in any order. docs/world.md describes the
// world.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

enum class SolidKind : std::uint8_t { kSphere, kCube, kCylinder, kCone };
enum class SolidColour : std::uint8_t {
  kRed,
  kGreen,
  kBlue,
  kYellow,
  kPurple,
  kCyan,
  kOrange,
  kWhite
};
enum class SolidSize : std::uint8_t { kSmall, kLarge };
enum class SolidMaterial : std::uint8_t { kMatte, kShiny };
enum class FloorKind : std::uint8_t { kGray, kBrown, kDark, kCheckered };
enum class SceneSplit : std::uint8_t { kTrain, kVal, kHoldout };

inline constexpr int kSolidKinds = 4;
inline constexpr int kSolidColours = 8;
inline constexpr int kSolidSizes = 2;
inline constexpr int kSolidMaterials = 2;
inline constexpr int kFloorKinds = 4;
inline constexpr int kMaxSolids = 4;

// Every sampled scene keeps at least this share of each solid's silhouette in sight, at any
// image size of 64 or more.
inline constexpr double kVisibleShare = 0.65;

// Place on the table: x to the right, z away from the camera, in units of a large sphere's radius.
// Multiples of 1/100, so that the JSON text is exact.
struct Solid {
  SolidKind kind = SolidKind::kSphere;
  SolidColour colour = SolidColour::kRed;
  SolidSize size = SolidSize::kLarge;
  SolidMaterial material = SolidMaterial::kMatte;
  double x = 0.0;
  double z = 0.0;
  bool operator==(const Solid&) const = default;
};

struct Scene {
  std::uint64_t seed = 0;  // of the floor's noise and of the caption's wording
  FloorKind floor = FloorKind::kGray;
  std::vector<Solid> solids;  // 1 to 4, left to right as the camera sees them
  bool operator==(const Scene&) const = default;
};

// The words of the world, used in JSON, captions and on the command line alike.
std::string_view name_of(SolidKind kind);
std::string_view name_of(SolidColour colour);
std::string_view name_of(SolidSize size);
std::string_view name_of(SolidMaterial material);
std::string_view name_of(FloorKind floor);
std::string_view name_of(SceneSplit split);
std::span<const std::string_view> kind_names();
std::span<const std::string_view> colour_names();
std::span<const std::string_view> size_names();
std::span<const std::string_view> material_names();
std::span<const std::string_view> floor_names();
std::span<const std::string_view> split_names();

// "train", "val" or "holdout"; anything else is an Error of kind kUsage naming `where`.
SceneSplit parse_split(std::string_view text, std::string_view where = "--split");

// A combination that no train or val scene contains and every hold-out scene contains.
struct HoldoutCombination {
  SolidColour colour;
  SolidMaterial material;
  SolidKind kind;
};
std::span<const HoldoutCombination> holdout_combinations();
bool is_holdout(const Solid& solid);
bool has_holdout(const Scene& scene);

// The scene number `index` of a split. Same arguments, same scene, always.
Scene sample_scene(std::uint64_t seed, SceneSplit split, std::uint64_t index);

// One line of JSON: {"version":1,"seed":"<u64>","floor":..,"solids":[{"kind","colour","size",
// "material","x","z"}]}. Reads back to an equal scene.
std::string scene_to_json(const Scene& scene);

// Reads scene_to_json's format, strictly: an unknown, missing or repeated field, an unknown word, a
// solid off the table or two that touch are an Error (kUsage) naming `file`, the JSON path, what
// was expected and what was found. "seed" may be left out (0). Solids in any order; the result is
// ordered left to right as the camera sees them.
Scene scene_from_json(std::string_view text, std::string_view file = "");

}  // namespace tessera
