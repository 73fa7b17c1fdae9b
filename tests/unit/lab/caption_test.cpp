// Captions and questions: every attribute is said, the canonical form reads back, answers are true.
#include "apps/lab/scene/caption.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "engine/core/error.h"

namespace tessera::caption_test {
namespace {

Scene without_places(Scene scene) {
  scene.seed = 0;
  for (Solid& solid : scene.solids) solid.x = solid.z = 0.0;
  return scene;
}

TEST(Caption, CanonicalWordingIsFixed) {
  Scene scene;
  scene.floor = FloorKind::kCheckered;
  scene.solids = {
      {SolidKind::kSphere, SolidColour::kRed, SolidSize::kLarge, SolidMaterial::kShiny},
      {SolidKind::kCube, SolidColour::kBlue, SolidSize::kSmall, SolidMaterial::kMatte},
      {SolidKind::kCone, SolidColour::kGreen, SolidSize::kSmall, SolidMaterial::kMatte}};
  EXPECT_EQ(canonical_caption(scene),
            "a large red shiny sphere, a small blue matte cube and a small green matte cone on a "
            "checkered floor");
  scene.solids.resize(1);
  EXPECT_EQ(canonical_caption(scene), "a large red shiny sphere on a checkered floor");
}

TEST(Caption, CanonicalReadsBackOnTenThousandScenes) {
  for (int i = 0; i < 10000; ++i) {
    const Scene scene = sample_scene(21, static_cast<SceneSplit>(i % 3), i);
    ASSERT_EQ(parse_canonical(canonical_caption(scene)), without_places(scene)) << i;
  }
}

TEST(Caption, EveryWordingSaysEveryAttribute) {
  for (int i = 0; i < 4000; ++i) {
    const Scene scene = sample_scene(22, static_cast<SceneSplit>(i % 3), i);
    const std::string caption = scene_caption(scene);
    for (const Solid& solid : scene.solids) {
      EXPECT_NE(caption.find(describe(solid)), std::string::npos) << caption;
    }
    EXPECT_NE(caption.find("on a " + std::string(name_of(scene.floor)) + " floor"),
              std::string::npos)
        << caption;
  }
}

// About six in ten are canonical; a binomial of 10,000 stays within 5 standard deviations.
TEST(Caption, SixInTenAreCanonicalAndTheOtherWordingsOccur) {
  int canonical = 0;
  std::map<std::string, int> wordings;
  for (int i = 0; i < 10000; ++i) {
    const Scene scene = sample_scene(23, SceneSplit::kTrain, i);
    const std::string caption = scene_caption(scene);
    if (caption == canonical_caption(scene)) ++canonical;
    for (const char* mark : {"there is", "there are", "one solid", "four solids", "to the left of",
                             "to the right of", "behind", "in front of", "from left to right"}) {
      if (caption.find(mark) != std::string::npos) ++wordings[mark];
    }
  }
  EXPECT_NEAR(canonical, 6000, 245);
  EXPECT_EQ(wordings.size(), 9u);
  for (const auto& [mark, count] : wordings) EXPECT_GT(count, 50) << mark;
}

// Relations are statements about the scene, not decoration.
TEST(Caption, RelationsAreTrue) {
  int checked = 0;
  for (int i = 0; i < 6000; ++i) {
    const Scene scene = sample_scene(24, SceneSplit::kTrain, i);
    if (scene.solids.size() != 2) continue;
    const std::string caption = scene_caption(scene);
    const bool left = caption.find(" to the left of ") != std::string::npos;
    const bool right = caption.find(" to the right of ") != std::string::npos;
    if (!left && !right) continue;
    ++checked;
    const std::size_t first = caption.find(describe(scene.solids[0]));
    const std::size_t second = caption.find(describe(scene.solids[1]));
    EXPECT_EQ(first < second, left) << caption;
    const Solid& subject = scene.solids[left ? 0 : 1];
    const Solid& object = scene.solids[left ? 1 : 0];
    if (caption.find("behind") != std::string::npos) {
      EXPECT_GT(subject.z, object.z) << caption;
    }
    if (caption.find("front") != std::string::npos) {
      EXPECT_LT(subject.z, object.z) << caption;
    }
  }
  EXPECT_GT(checked, 100);
}

TEST(Caption, OtherTextIsRefusedWithItsPlace) {
  const std::string good = "a large red shiny sphere and a small blue matte cube on a dark floor";
  EXPECT_EQ(parse_canonical(good).solids.size(), 2u);
  const struct {
    const char* text;
    const char* where;
  } kBad[] = {
      {"", "byte 0"},
      {"a large red shiny", "byte 17"},
      {"a large pink shiny sphere on a dark floor", "byte 8"},
      {"a large red shiny sphere on a wet floor", "byte 30"},
      {"a large red shiny sphere on a dark floor.", "byte 40"},
      {"a large red shiny sphere, a small blue matte cube on a dark floor", "byte 55"},
      {"a large red shiny sphere and a small blue matte cube and a large red shiny cone on a dark "
       "floor",
       "byte 52"},
      {"a large red shiny sphere, a large red shiny sphere, a large red shiny sphere, a large red "
       "shiny sphere and a large red shiny sphere on a dark floor",
       "byte 102"},
  };
  for (const auto& bad : kBad) {
    try {
      parse_canonical(bad.text);
      ADD_FAILURE() << "accepted: " << bad.text;
    } catch (const Error& error) {
      EXPECT_EQ(error.info().where, bad.where) << error.what();
      EXPECT_EQ(error.exit_code(), 2);
    }
  }
}

// Answers recomputed from the scene by another road: the words of the question.
std::string answer_to(const Scene& scene, const std::string& question) {
  static const char* kNumbers[] = {"zero", "one", "two", "three", "four"};
  const auto has = [&](std::string_view word) { return question.find(word) != std::string::npos; };
  const Solid& end = has("leftmost") ? scene.solids.front() : scene.solids.back();
  if (has("floor")) return std::string(name_of(scene.floor));
  if (has("what kind")) return std::string(name_of(end.kind));
  if (has("what colour")) return std::string(name_of(end.colour));
  if (has("small or large")) return std::string(name_of(end.size));
  if (has("matte or shiny")) return std::string(name_of(end.material));
  if (has("behind") || has("in front of")) {
    const Solid* subject = nullptr;
    const Solid* object = nullptr;
    std::size_t subject_at = std::string::npos;
    for (const Solid& solid : scene.solids) {
      const std::size_t at = question.find(describe(solid).substr(2));
      if (at == std::string::npos) continue;
      if (subject == nullptr || at < subject_at) {
        object = subject;
        subject = &solid;
        subject_at = at;
      } else {
        object = &solid;
      }
    }
    return (subject->z > object->z) == has("behind") ? "yes" : "no";
  }
  const auto matches = [&](const Solid& solid) {
    for (const std::string_view word : colour_names()) {
      if (has(" " + std::string(word) + " ") && name_of(solid.colour) != word) return false;
    }
    for (const std::string_view word : kind_names()) {
      if (has(word) && name_of(solid.kind) != word) return false;
    }
    for (const std::string_view word : size_names()) {
      if (has(word) && name_of(solid.size) != word) return false;
    }
    for (const std::string_view word : material_names()) {
      if (has(word) && name_of(solid.material) != word) return false;
    }
    return true;
  };
  const auto found = std::count_if(scene.solids.begin(), scene.solids.end(), matches);
  if (has("is there")) return found > 0 ? "yes" : "no";
  return kNumbers[found];
}

TEST(Questions, AnswersAreTrueAndEveryKindOccurs) {
  std::set<std::string> kinds;
  std::map<std::string, int> answers;
  for (int i = 0; i < 3000; ++i) {
    const Scene scene = sample_scene(25, static_cast<SceneSplit>(i % 3), i);
    const std::vector<QuestionAnswer> list = scene_questions(scene);
    ASSERT_GE(list.size(), 4u);
    ASSERT_LE(list.size(), 5u);
    for (const QuestionAnswer& pair : list) {
      EXPECT_EQ(pair.answer, answer_to(scene, pair.question)) << pair.question;
      EXPECT_EQ(pair.question.find("a orange"), std::string::npos);
      kinds.insert(pair.question.substr(0, pair.question.find(' ', 8)));
      ++answers[pair.answer];
    }
  }
  EXPECT_GE(kinds.size(), 5u);
  EXPECT_GT(answers["yes"], answers["no"] / 2);
  EXPECT_GT(answers["no"], answers["yes"] / 2);
}

}  // namespace
}  // namespace tessera::caption_test
