#include "apps/lab/scene/caption.h"

#include <algorithm>
#include <functional>
#include <optional>

#include "apps/lab/scene/word_reader.h"
#include "apps/lab/scene/wording.h"
#include "engine/core/error.h"
#include "engine/core/index.h"

namespace tessera {
namespace {

constexpr double kClearDepth = 0.8;  // least difference of z that "behind" may speak of

std::vector<std::string> described(const Scene& scene) {
  std::vector<std::string> parts;
  for (const Solid& solid : scene.solids) parts.push_back(describe(solid));
  return parts;
}

std::string list_of(const Scene& scene) { return join_list(described(scene)); }

std::string definite(const Solid& solid) { return "the" + describe(solid).substr(1); }

// "behind", "in front of", or nothing if the two stand about equally deep.
std::string_view depth_word(const Solid& a, const Solid& b) {
  if (a.z - b.z >= kClearDepth) return "behind";
  if (b.z - a.z >= kClearDepth) return "in front of";
  return {};
}

// Two solids told by where they stand to each other; more are notified in order, with a depth relation
// between the first clear pair.
std::string related(const Scene& scene, const Choices& choices) {
  const std::vector<Solid>& solids = scene.solids;
  if (solids.size() == 2) {
    const bool mirrored = choices.below(2, 1) == 1;
    const Solid& first = solids[mirrored ? 1 : 0];
    const Solid& second = solids[mirrored ? 0 : 1];
    std::string text = describe(first) + (mirrored ? " to the right of " : " to the left of ");
    const std::string_view depth = depth_word(first, second);
    if (!depth.empty()) text += "and " + std::string(depth) + " ";
    return text + describe(second) + " " + floor_phrase(scene.floor);
  }
  std::string text = "from left to right " + list_of(scene) + " " + floor_phrase(scene.floor);
  for (std::size_t i = 0; i + 1 < solids.size(); ++i) {
    const std::string_view depth = depth_word(solids[i], solids[i + 1]);
    if (depth.empty()) continue;
    return text + ", " + definite(solids[i]) + " " + std::string(depth) + " " +
           definite(solids[i + 1]);
  }
  return text;
}

std::string yes_no(bool truth) { return truth ? "yes" : "no"; }

int count_if(const Scene& scene, const std::function<bool(const Solid&)>& test) {
  return narrow<int>(std::count_if(scene.solids.begin(), scene.solids.end(), test));
}

// "is there a red sphere?": half the time about a solid that is there, else about a random pair,
// answered by what the scene holds.
QuestionAnswer is_there(const Scene& scene, const Choices& choices) {
  const Solid& present = scene.solids[choices.below(narrow<int>(scene.solids.size()), 10)];
  const bool about_present = choices.below(2, 11) == 0;
  const SolidColour colour =
      about_present ? present.colour : enum_at<SolidColour>(choices.below(kSolidColours, 12));
  const SolidKind kind =
      about_present ? present.kind : enum_at<SolidKind>(choices.below(kSolidKinds, 13));
  const int found = count_if(
      scene, [&](const Solid& solid) { return solid.colour == colour && solid.kind == kind; });
  const std::string article = colour == SolidColour::kOrange ? "an " : "a ";
  return {
      "is there " + article + std::string(name_of(colour)) + " " + std::string(name_of(kind)) + "?",
      yes_no(found > 0)};
}

QuestionAnswer about_one(const Scene& scene, const Choices& choices) {
  const bool leftmost = choices.below(2, 20) == 0;
  const Solid& solid = leftmost ? scene.solids.front() : scene.solids.back();
  const std::string place = leftmost ? "leftmost" : "rightmost";
  switch (choices.below(4, 21)) {
    case 0:
      return {"what kind of solid is the " + place + " one?", std::string(name_of(solid.kind))};
    case 1:
      return {"is the " + place + " solid small or large?", std::string(name_of(solid.size))};
    case 2:
      return {"is the " + place + " solid matte or shiny?", std::string(name_of(solid.material))};
    default:
      return {"what colour is the " + place + " solid?", std::string(name_of(solid.colour))};
  }
}

QuestionAnswer how_many(const Scene& scene, const Choices& choices) {
  const std::string start = "how many ";
  switch (choices.below(3, 30)) {
    case 0: {
      const auto size = enum_at<SolidSize>(choices.below(kSolidSizes, 31));
      const int found = count_if(scene, [&](const Solid& solid) { return solid.size == size; });
      return {start + std::string(name_of(size)) + " solids are there?", number_word(found)};
    }
    case 1: {
      const auto material = enum_at<SolidMaterial>(choices.below(kSolidMaterials, 31));
      const int found =
          count_if(scene, [&](const Solid& solid) { return solid.material == material; });
      return {start + std::string(name_of(material)) + " solids are there?", number_word(found)};
    }
    default: {
      const auto kind = enum_at<SolidKind>(choices.below(kSolidKinds, 31));
      const int found = count_if(scene, [&](const Solid& solid) { return solid.kind == kind; });
      return {start + std::string(name_of(kind)) + "s are there?", number_word(found)};
    }
  }
}

// "is the A behind the B?" for the first pair of neighbours clearly apart in depth.
std::optional<QuestionAnswer> which_is_behind(const Scene& scene, const Choices& choices) {
  for (std::size_t i = 0; i + 1 < scene.solids.size(); ++i) {
    const std::string_view depth = depth_word(scene.solids[i], scene.solids[i + 1]);
    if (depth.empty()) continue;
    const std::string_view asked = choices.below(2, 40) == 0 ? "behind" : "in front of";
    return QuestionAnswer{"is " + definite(scene.solids[i]) + " " + std::string(asked) + " " +
                              definite(scene.solids[i + 1]) + "?",
                          yes_no(depth == asked)};
  }
  return std::nullopt;
}

Solid read_description(WordReader& words) {
  Solid solid;
  words.need("a ");
  solid.size = enum_at<SolidSize>(words.need_one_of(size_names()));
  words.need(" ");
  solid.colour = enum_at<SolidColour>(words.need_one_of(colour_names()));
  words.need(" ");
  solid.material = enum_at<SolidMaterial>(words.need_one_of(material_names()));
  words.need(" ");
  solid.kind = enum_at<SolidKind>(words.need_one_of(kind_names()));
  return solid;
}

}  // namespace

std::string describe(const Solid& solid) {
  std::string text = "a ";
  text += name_of(solid.size);
  text += " ";
  text += name_of(solid.colour);
  text += " ";
  text += name_of(solid.material);
  text += " ";
  text += name_of(solid.kind);
  return text;
}

std::string canonical_caption(const Scene& scene) {
  return list_of(scene) + " " + floor_phrase(scene.floor);
}

std::string scene_caption(const Scene& scene) {
  expects(!scene.solids.empty() && scene.solids.size() <= kMaxSolids, "1 to 4 solids");
  const Choices choices(scene.seed);
  const int wording = choices.below(20, 0);
  if (wording < 12) return canonical_caption(scene);
  if (wording < 15) return there_are(scene.floor, described(scene));
  if (wording < 17 || scene.solids.size() == 1) return counted(scene.floor, described(scene));
  return related(scene, choices);
}

std::vector<QuestionAnswer> scene_questions(const Scene& scene) {
  expects(!scene.solids.empty() && scene.solids.size() <= kMaxSolids, "1 to 4 solids");
  const Choices choices(scene.seed);
  std::vector<QuestionAnswer> list;
  list.push_back({"how many solids are there?", number_word(narrow<int>(scene.solids.size()))});
  list.push_back(about_one(scene, choices));
  list.push_back(is_there(scene, choices));
  if (choices.below(2, 50) == 0) {
    list.push_back({"what does the floor look like?", std::string(name_of(scene.floor))});
  } else {
    list.push_back(how_many(scene, choices));
  }
  if (auto depth = which_is_behind(scene, choices)) list.push_back(std::move(*depth));
  return list;
}

Scene parse_canonical(std::string_view caption) {
  WordReader words(caption);
  Scene scene;
  scene.solids.push_back(read_description(words));
  bool last = false;
  while (!words.accept(" on a ")) {
    if (last || scene.solids.size() == kMaxSolids) words.fail("\" on a \"");
    last = words.accept(" and ");
    if (!last) words.need(", ");
    scene.solids.push_back(read_description(words));
  }
  if (scene.solids.size() > 1 && !last) words.fail("\" and \" before the last solid");
  scene.floor = enum_at<FloorKind>(words.need_one_of(floor_names()));
  words.need(" floor");
  words.need_end();
  return scene;
}

}  // namespace tessera
