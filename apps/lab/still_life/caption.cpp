#include "apps/lab/still_life/caption.h"

#include <array>

#include "apps/lab/scene/wording.h"
#include "apps/lab/still_life/stage.h"
#include "engine/core/error.h"
#include "engine/core/index.h"

namespace tessera::still {
namespace {

constexpr double kClearDepth = 0.8;  // least difference of z that "behind" may speak of

std::string article_of(std::string_view word) {
  return std::string("aeiou").find(word.front()) == std::string::npos ? "a " : "an ";
}

// "red wooden cube" or "apple".
std::string plain_name(const Object& object) {
  if (!object.thing.empty()) return object.thing;
  return std::string(name_of(object.colour)) + " " + std::string(name_of(object.surface)) + " " +
         std::string(name_of(object.kind));
}

// "a red wooden cube", "an apple".
std::string without_size(const Object& object, const Things& things) {
  if (object.thing.empty()) return article_of(name_of(object.colour)) + plain_name(object);
  return things.find(object.thing)->article + " " + object.thing;
}

using Describe = std::string (*)(const Object&, const Things&);

std::string list_of(const StillLife& scene, const Things& things, Describe describe_one) {
  std::vector<std::string> parts;
  for (const Object& object : scene.objects) parts.push_back(describe_one(object, things));
  return join_list(parts);
}

std::string table_phrase(const StillLife& scene) {
  return "on a " + std::string(name_of(scene.table_colour)) + " " +
         std::string(name_of(scene.table)) + " table";
}

std::string sky_phrase(const StillLife& scene) {
  switch (scene.sky) {
    case Sky::kClear:
    case Sky::kCloudy:
      return " under a " + std::string(name_of(scene.sky)) + " sky";
    case Sky::kSunset:
      return " at sunset";
    case Sky::kNight:
      break;
  }
  return " at night";
}

std::string lamp_phrase(const StillLife& scene) {
  return ", lit from the " + std::string(name_of(scene.lamp));
}

std::string around(const StillLife& scene) {
  return table_phrase(scene) + sky_phrase(scene) + lamp_phrase(scene);
}

// "behind", "in front of", or nothing if the two stand about equally deep.
std::string_view depth_word(const Object& a, const Object& b) {
  if (a.z - b.z >= kClearDepth) return "behind";
  if (b.z - a.z >= kClearDepth) return "in front of";
  return {};
}

// Two objects by how they stand to each other; more in order, with the first pair of neighbours
// that are clearly apart in depth.
std::string related(const StillLife& scene, const Things& things, const Choices& choices) {
  const std::vector<Object>& objects = scene.objects;
  if (objects.size() == 2) {
    const bool mirrored = choices.below(2, 1) == 1;
    const Object& first = objects[mirrored ? 1 : 0];
    const Object& second = objects[mirrored ? 0 : 1];
    std::string text = describe(first, things);
    text += mirrored ? " to the right of " : " to the left of ";
    const std::string_view depth = depth_word(first, second);
    if (!depth.empty()) text += "and " + std::string(depth) + " ";
    return text + describe(second, things) + " " + around(scene);
  }
  std::string text = "from left to right " + list_of(scene, things, describe) + " " + around(scene);
  for (std::size_t i = 0; i + 1 < objects.size(); ++i) {
    const std::string_view depth = depth_word(objects[i], objects[i + 1]);
    if (depth.empty()) continue;
    return text + ", the " + plain_name(objects[i]) + " " + std::string(depth) + " the " +
           plain_name(objects[i + 1]);
  }
  return text;
}

}  // namespace

std::string describe(const Object& object, const Things&) {
  return "a " + std::string(name_of(object.size)) + " " + plain_name(object);
}

std::string canonical_caption(const StillLife& scene, const Things& things) {
  return list_of(scene, things, describe) + " " + around(scene);
}

std::string caption(const StillLife& scene, const Things& things) {
  expects(!scene.objects.empty() && scene.objects.size() <= kMaxObjects, "1 to 4 objects");
  const Choices choices(scene.seed);
  const int wording = choices.below(20, 0);
  if (wording < 8) return canonical_caption(scene, things);
  if (wording < 11) {
    const std::string verb = scene.objects.size() == 1 ? " stands " : " stand ";
    return table_phrase(scene) + verb + list_of(scene, things, describe) + sky_phrase(scene);
  }
  if (wording < 14) return list_of(scene, things, without_size) + " " + table_phrase(scene);
  if (wording < 16 || scene.objects.size() == 1) {
    return "a picture of " + list_of(scene, things, without_size) + " " + table_phrase(scene) +
           sky_phrase(scene);
  }
  return related(scene, things, choices);
}

bool holds(const StillLife& scene, const Things& things, const Related& related) {
  const Object& a = nth(scene.objects, related.first);
  const Object& b = nth(scene.objects, related.second);
  switch (related.relation) {
    case Relation::kLeftOf:
      return screen_x(a, things) < screen_x(b, things);
    case Relation::kRightOf:
      return screen_x(a, things) > screen_x(b, things);
    case Relation::kInFrontOf:
      return b.z - a.z >= kClearDepth;
    case Relation::kBehind:
      return a.z - b.z >= kClearDepth;
  }
  return false;
}

}  // namespace tessera::still
