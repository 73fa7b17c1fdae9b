// World 2, the still life: a table with textured solids and cut-outs of things anyone knows, under
// a sky. A scene is plain data as in world 1 (apps/lab/scene): read from and written to JSON, or
// drawn from (seed, split, index). docs/world.md describes both worlds.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/lab/scene/scene.h"
#include "apps/lab/still_life/things.h"

namespace tessera::still {

enum class Colour : std::uint8_t {
  kRed,
  kOrange,
  kYellow,
  kGreen,
  kBlue,
  kPurple,
  kBrown,
  kGray,
  kWhite,
  kBlack
};
enum class Surface : std::uint8_t { kPlain, kWood, kMarble, kCloth, kMetal, kSpeckled };
enum class Sky : std::uint8_t { kClear, kCloudy, kSunset, kNight };
enum class Lamp : std::uint8_t { kLeft, kRight, kFront };  // where the light comes from

inline constexpr int kColours = 10;
inline constexpr int kSurfaces = 6;
inline constexpr int kSkies = 4;
inline constexpr int kLamps = 3;
inline constexpr int kMaxObjects = 4;
inline constexpr int kTurns = 100;  // of a quarter turn

// Every sampled scene keeps at least this share of each object in sight at 128 pixels or more.
inline constexpr double kVisibleShare = 0.6;

// A solid, or a cut-out of a thing that is upright and faces the camera. x to the right, z away from
// the camera; a large sphere has a radius of 1.2 units. Multiples of 1/100.
struct Object {
  std::string thing;  // name of a cut-out; empty: a solid
  SolidSize size = SolidSize::kLarge;
  double x = 0.0;
  double z = 0.0;
  // Of a solid.
  SolidKind kind = SolidKind::kSphere;
  Colour colour = Colour::kRed;
  Surface surface = Surface::kPlain;
  int turn = 0;  // around the vertical, 0 to kTurns - 1
  // Of a thing.
  bool mirrored = false;
  bool operator==(const Object&) const = default;
};

struct StillLife {
  std::uint64_t seed = 0;  // of every texture, the sky's detail, the exact light and the wording
  Surface table = Surface::kWood;
  Colour table_colour = Colour::kBrown;
  Sky sky = Sky::kClear;
  Lamp lamp = Lamp::kLeft;
  std::vector<Object> objects;  // 1 to 4, left to right as the camera sees them
  bool operator==(const StillLife&) const = default;
};

std::span<const std::string_view> still_colour_names();
std::span<const std::string_view> surface_names();
std::span<const std::string_view> sky_names();
std::span<const std::string_view> lamp_names();
std::string_view name_of(Colour colour);
std::string_view name_of(Surface surface);
std::string_view name_of(Sky sky);
std::string_view name_of(Lamp lamp);

// The colours that tables have.
std::span<const Colour> table_colours();
bool is_table_colour(Colour colour);

// Whether no train or val scene has this object on such a table under such a sky: for each colour
// of solids one pair of surface and kind, for each thing one of 24 pairs of table and sky. Every
// holdout scene has exactly one such object.
bool is_holdout(const Object& object, Surface table, Sky sky);
bool has_holdout(const StillLife& scene);

// The scene number `index` of a split. `things` may be empty: solids alone. Same arguments and same
// names in `things`, same scene.
StillLife sample_still_life(std::uint64_t seed, SceneSplit split, std::uint64_t index,
                            const Things& things);

// One line of JSON: {"version":2,"seed":"<u64>","table":{"colour","surface"},"sky","light",
// "objects":[..]}, an object being {"kind","colour","surface","size","turn","x","z"} or
// {"thing","size","mirrored","x","z"}. Reads back to an equal scene.
std::string to_json(const StillLife& scene);

// Reads to_json's format, strictly, as scene_from_json(): an unknown, missing or repeated field, an
// unknown word, a thing that `things` lacks, an object off the table or two that touch are an Error
// (kUsage) naming `file` and the JSON path. "seed", "turn" and "mirrored" may be left out.
StillLife still_life_from_json(std::string_view text, const Things& things,
                               std::string_view file = "");

}  // namespace tessera::still
