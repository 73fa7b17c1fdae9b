#include "apps/lab/still_life/still_life.h"

#include <algorithm>
#include <array>

#include "engine/core/index.h"

namespace tessera::still {
namespace {

constexpr std::array<std::string_view, kColours> kColourNames = {
    "red", "orange", "yellow", "green", "blue", "purple", "brown", "gray", "white", "black"};
constexpr std::array<std::string_view, kSurfaces> kSurfaceNames = {"plain", "wooden", "marble",
                                                                   "cloth", "metal",  "speckled"};
constexpr std::array<std::string_view, kSkies> kSkyNames = {"clear", "cloudy", "sunset", "night"};
constexpr std::array<std::string_view, kLamps> kLampNames = {"left", "right", "front"};
constexpr std::array<Colour, 6> kTableColours = {Colour::kBrown, Colour::kGray, Colour::kWhite,
                                                 Colour::kGreen, Colour::kBlue, Colour::kRed};

// For each colour of solids, in the order of the enumeration.
struct HeldOut {
  Surface surface;
  SolidKind kind;
};
constexpr std::array<HeldOut, kColours> kHeldOut = {{
    {Surface::kMarble, SolidKind::kCylinder},
    {Surface::kMetal, SolidKind::kSphere},
    {Surface::kCloth, SolidKind::kCone},
    {Surface::kWood, SolidKind::kCube},
    {Surface::kSpeckled, SolidKind::kSphere},
    {Surface::kPlain, SolidKind::kCylinder},
    {Surface::kMetal, SolidKind::kCone},
    {Surface::kMarble, SolidKind::kCube},
    {Surface::kCloth, SolidKind::kSphere},
    {Surface::kSpeckled, SolidKind::kCone},
}};

// FNV-1a, 32 bits.
std::uint32_t hash_of(std::string_view name) {
  std::uint32_t hash = 0x811c9dc5u;
  for (const char c : name) hash = (hash ^ byte_of(c)) * 0x01000193u;
  return hash;
}

}  // namespace

std::span<const std::string_view> still_colour_names() { return kColourNames; }
std::span<const std::string_view> surface_names() { return kSurfaceNames; }
std::span<const std::string_view> sky_names() { return kSkyNames; }
std::span<const std::string_view> lamp_names() { return kLampNames; }
std::string_view name_of(Colour colour) { return nth(kColourNames, colour); }
std::string_view name_of(Surface surface) { return nth(kSurfaceNames, surface); }
std::string_view name_of(Sky sky) { return nth(kSkyNames, sky); }
std::string_view name_of(Lamp lamp) { return nth(kLampNames, lamp); }

std::span<const Colour> table_colours() { return kTableColours; }

bool is_table_colour(Colour colour) {
  return std::find(kTableColours.begin(), kTableColours.end(), colour) != kTableColours.end();
}

bool is_holdout(const Object& object, Surface table, Sky sky) {
  if (object.thing.empty()) {
    const HeldOut& held = nth(kHeldOut, object.colour);
    return held.surface == object.surface && held.kind == object.kind;
  }
  const std::uint32_t hash = hash_of(object.thing);
  return name_of(table) == kSurfaceNames[hash % kSurfaces] &&
         name_of(sky) == kSkyNames[hash / kSurfaces % kSkies];
}

bool has_holdout(const StillLife& scene) {
  return std::any_of(scene.objects.begin(), scene.objects.end(), [&](const Object& object) {
    return is_holdout(object, scene.table, scene.sky);
  });
}

}  // namespace tessera::still
