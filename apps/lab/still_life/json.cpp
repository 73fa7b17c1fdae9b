// Still lifes as JSON text: strict both ways.
#include <array>
#include <nlohmann/json.hpp>

#include "apps/lab/scene/scene_value.h"
#include "apps/lab/still_life/stage.h"
#include "apps/lab/still_life/still_set.h"
#include "engine/core/index.h"

namespace tessera::still {
namespace {

Object read_solid(const JsonReader& reader) {
  static constexpr std::array<std::string_view, 7> kFields = {"kind", "colour", "surface", "size",
                                                              "turn", "x",      "z"};
  reader.only(kFields);
  Object object;
  object.kind = read_word<SolidKind>(reader, "kind", kind_names());
  object.colour = read_word<Colour>(reader, "colour", still_colour_names());
  object.surface = read_word<Surface>(reader, "surface", surface_names());
  object.turn = narrow<int>(reader.integer_or("turn", 0, 0, kTurns - 1));
  return object;
}

Object read_thing(const JsonReader& reader, const Things& things) {
  static constexpr std::array<std::string_view, 5> kFields = {"thing", "size", "mirrored", "x",
                                                              "z"};
  reader.only(kFields);
  Object object;
  object.thing = reader.string("thing");
  if (things.find(object.thing) == nullptr) {
    reader.fail("thing",
                things.empty() ? "no thing without a pack (--things FILE)" : "a thing of the pack",
                "\"" + object.thing + "\"");
  }
  object.mirrored = reader.boolean_or("mirrored", false);
  return object;
}

Object read_object(const JsonReader& reader, const Things& things) {
  Object object = reader.has("thing") ? read_thing(reader, things) : read_solid(reader);
  object.size = read_word<SolidSize>(reader, "size", size_names());
  object.x = reader.number("x", -kMaxX, kMaxX);
  object.z = reader.number("z", -kMaxZ, kMaxZ);
  return object;
}

void read_table(const JsonReader& reader, StillLife* scene) {
  static constexpr std::array<std::string_view, 2> kFields = {"colour", "surface"};
  reader.only(kFields);
  scene->table_colour = read_word<Colour>(reader, "colour", still_colour_names());
  if (!is_table_colour(scene->table_colour)) {
    std::string expected = "a colour of tables:";
    for (const Colour colour : table_colours()) expected += " " + std::string(name_of(colour));
    reader.fail("colour", expected, "\"" + std::string(name_of(scene->table_colour)) + "\"");
  }
  scene->table = read_word<Surface>(reader, "surface", surface_names());
}

Json object_value(const Object& object) {
  if (!object.thing.empty()) {
    return {{"thing", object.thing},
            {"size", name_of(object.size)},
            {"mirrored", object.mirrored},
            {"x", object.x},
            {"z", object.z}};
  }
  return {{"kind", name_of(object.kind)},
          {"colour", name_of(object.colour)},
          {"surface", name_of(object.surface)},
          {"size", name_of(object.size)},
          {"turn", object.turn},
          {"x", object.x},
          {"z", object.z}};
}

Json value_of(const StillLife& scene) {
  Json objects = Json::array();
  for (const Object& object : scene.objects) objects.push_back(object_value(object));
  const Json table = {{"colour", name_of(scene.table_colour)}, {"surface", name_of(scene.table)}};
  return {{"version", 2},
          {"seed", std::to_string(scene.seed)},
          {"table", table},
          {"sky", name_of(scene.sky)},
          {"light", name_of(scene.lamp)},
          {"objects", std::move(objects)}};
}

}  // namespace

std::string to_json(const StillLife& scene) { return value_of(scene).dump(); }

StillLife still_life_from_json(std::string_view text, const Things& things, std::string_view file) {
  static constexpr std::array<std::string_view, 6> kFields = {"version", "seed",  "table",
                                                              "sky",     "light", "objects"};
  const std::string name(file);
  const Json json = parse_json(text, name, kSceneLimits);
  const JsonReader reader(json, name, "", ErrorKind::kUsage);
  reader.only(kFields);
  reader.integer("version", 2, 2);
  StillLife scene;
  scene.seed = read_seed(reader);
  read_table(reader.object("table"), &scene);
  scene.sky = read_word<Sky>(reader, "sky", sky_names());
  scene.lamp = read_word<Lamp>(reader, "light", lamp_names());
  for (const JsonReader& object : reader.objects("objects", kMaxObjects)) {
    scene.objects.push_back(read_object(object, things));
  }
  if (scene.objects.empty()) reader.fail("objects", "1 to 4 objects", "none");
  refuse_touching(
      reader, "objects", "an object", scene.objects,
      [&](const Object& a, const Object& b) { return apart_on_table(a, b, things, 0.0); });
  order_left_to_right(&scene.objects, things);
  return scene;
}

std::string record_to_json(const Record& record) {
  const Json line = {{"world", 2},
                     {"index", record.index},
                     {"split", name_of(record.split)},
                     {"seed", record.set_seed},
                     {"size", record.size},
                     {"things", record.things},
                     {"scene", value_of(record.scene)},
                     {"caption", record.caption},
                     {"canonical", record.canonical}};
  return line.dump();
}

}  // namespace tessera::still
