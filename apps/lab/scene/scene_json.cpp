// Scenes as JSON text: strict both ways (RFC 8259 by engine/core/json.h, no unknown fields).
#include <array>
#include <nlohmann/json.hpp>

#include "apps/lab/scene/geometry.h"
#include "apps/lab/scene/scene.h"
#include "apps/lab/scene/scene_value.h"
#include "engine/core/index.h"
#include "engine/core/json.h"

namespace tessera {
namespace {

Solid read_solid(const JsonReader& reader) {
  static constexpr std::array<std::string_view, 6> kFields = {"kind",     "colour", "size",
                                                              "material", "x",      "z"};
  reader.only(kFields);
  Solid solid;
  solid.kind = read_word<SolidKind>(reader, "kind", kind_names());
  solid.colour = read_word<SolidColour>(reader, "colour", colour_names());
  solid.size = read_word<SolidSize>(reader, "size", size_names());
  solid.material = read_word<SolidMaterial>(reader, "material", material_names());
  solid.x = reader.number("x", -double{world::kMaxX}, double{world::kMaxX});
  solid.z = reader.number("z", -double{world::kMaxZ}, double{world::kMaxZ});
  return solid;
}

}  // namespace

std::uint64_t read_seed(const JsonReader& reader) {
  if (!reader.has("seed")) return 0;
  const std::string digits = reader.string("seed");
  constexpr const char* kExpected = "a whole number below 2^64, as a string";
  if (digits.empty() || digits.size() > 20) reader.fail("seed", kExpected, "\"" + digits + "\"");
  std::uint64_t seed = 0;
  for (const char digit : digits) {
    if (digit < '0' || digit > '9' || __builtin_mul_overflow(seed, std::uint64_t{10}, &seed) ||
        __builtin_add_overflow(seed, narrow<std::uint64_t>(digit - '0'), &seed)) {
      reader.fail("seed", kExpected, "\"" + digits + "\"");
    }
  }
  return seed;
}

Json scene_value(const Scene& scene) {
  Json solids = Json::array();
  for (const Solid& solid : scene.solids) {
    solids.push_back({{"kind", name_of(solid.kind)},
                      {"colour", name_of(solid.colour)},
                      {"size", name_of(solid.size)},
                      {"material", name_of(solid.material)},
                      {"x", solid.x},
                      {"z", solid.z}});
  }
  return {{"version", 1},
          {"seed", std::to_string(scene.seed)},
          {"floor", name_of(scene.floor)},
          {"solids", std::move(solids)}};
}

std::string scene_to_json(const Scene& scene) { return scene_value(scene).dump(); }

Scene scene_of(const JsonReader& reader) {
  static constexpr std::array<std::string_view, 4> kFields = {"version", "seed", "floor", "solids"};
  reader.only(kFields);
  reader.integer("version", 1, 1);
  Scene scene;
  scene.seed = read_seed(reader);
  scene.floor = read_word<FloorKind>(reader, "floor", floor_names());
  for (const JsonReader& solid : reader.objects("solids", kMaxSolids)) {
    scene.solids.push_back(read_solid(solid));
  }
  if (scene.solids.empty()) reader.fail("solids", "1 to 4 solids", "none");
  refuse_touching(reader, "solids", "a solid", scene.solids,
                  [](const Solid& a, const Solid& b) { return world::apart_on_ground(a, b, 0.0); });
  return scene;
}

Scene scene_from_json(std::string_view text, std::string_view file) {
  const std::string name(file);
  const Json json = parse_json(text, name, kSceneLimits);
  Scene scene = scene_of(JsonReader(json, name, "", ErrorKind::kUsage));
  world::order_left_to_right(&scene.solids);
  return scene;
}

}  // namespace tessera
