// Scenes as values: JSON both ways, what is refused, the splits and what each may contain.
#include "apps/lab/scene/scene.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>

#include "apps/lab/scene/geometry.h"
#include "engine/core/error.h"

namespace tessera::scene_test {
namespace {

const std::string kGood =
    R"({"version":1,"seed":"7","floor":"dark","solids":[)"
    R"({"kind":"cube","colour":"blue","size":"small","material":"matte","x":-1.25,"z":0.5},)"
    R"({"kind":"cone","colour":"red","size":"large","material":"shiny","x":1.5,"z":-0.31}]})";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(SceneJson, ReadsWhatItSays) {
  const Scene scene = scene_from_json(kGood, "two.json");
  EXPECT_EQ(scene.seed, 7u);
  EXPECT_EQ(scene.floor, FloorKind::kDark);
  ASSERT_EQ(scene.solids.size(), 2u);
  EXPECT_EQ(scene.solids[0], (Solid{SolidKind::kCube, SolidColour::kBlue, SolidSize::kSmall,
                                    SolidMaterial::kMatte, -1.25, 0.5}));
  EXPECT_EQ(scene.solids[1].x, 1.5);
  EXPECT_EQ(scene_to_json(scene), kGood);
}

TEST(SceneJson, EverySampledSceneSurvivesTheRoundTrip) {
  for (int i = 0; i < 2000; ++i) {
    const Scene scene = sample_scene(11, static_cast<SceneSplit>(i % 3), i);
    EXPECT_EQ(scene_from_json(scene_to_json(scene)), scene);
  }
}

TEST(SceneJson, SolidsInAnyOrderAreListedLeftToRight) {
  const Scene scene = sample_scene(3, SceneSplit::kVal, 9);
  Scene shuffled = scene;
  std::reverse(shuffled.solids.begin(), shuffled.solids.end());
  EXPECT_EQ(scene_from_json(scene_to_json(shuffled)), scene);
}

struct BadScene {
  const char* name;
  std::string text;
  const char* where;  // must appear in the message's place
};

class SceneJsonRefuses : public ::testing::TestWithParam<BadScene> {};

TEST_P(SceneJsonRefuses, WithThePlaceNamed) {
  const BadScene& bad = GetParam();
  try {
    scene_from_json(bad.text, "bad.json");
    FAIL() << "accepted " << bad.text;
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), 2) << error.what();
    EXPECT_NE(std::string(error.what()).find("bad.json"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find(bad.where), std::string::npos) << error.what();
    EXPECT_FALSE(error.info().expected.empty());
    EXPECT_FALSE(error.info().found.empty());
  }
}

INSTANTIATE_TEST_SUITE_P(
    Scenes, SceneJsonRefuses,
    ::testing::Values(
        BadScene{"UnknownField", replaced(kGood, "\"seed\"", "\"sede\""), "sede"},
        BadScene{"UnknownSolidField", replaced(kGood, "\"z\":0.5", "\"z\":0.5,\"y\":1"),
                 "solids[0]"},
        BadScene{"BadColour", replaced(kGood, "red", "pink"), "solids[1].colour"},
        BadScene{"BadKind", replaced(kGood, "cube", "torus"), "solids[0].kind"},
        BadScene{"BadSize", replaced(kGood, "small", "tiny"), "solids[0].size"},
        BadScene{"BadMaterial", replaced(kGood, "shiny", "wet"), "solids[1].material"},
        BadScene{"BadFloor", replaced(kGood, "dark", "lava"), "floor"},
        BadScene{"MissingX", replaced(kGood, "\"x\":-1.25,", ""), "solids[0].x"},
        BadScene{"OffTheTable", replaced(kGood, "1.5", "9.5"), "solids[1].x"},
        BadScene{"NumberAsText", replaced(kGood, "1.5", "\"1.5\""), "solids[1].x"},
        BadScene{"OtherVersion", replaced(kGood, "\"version\":1", "\"version\":2"), "version"},
        BadScene{"SeedNotANumber", replaced(kGood, "\"7\"", "\"-7\""), "seed"},
        BadScene{"SeedTooLarge", replaced(kGood, "\"7\"", "\"18446744073709551616\""), "seed"},
        BadScene{"NoSolids", R"({"version":1,"floor":"dark","solids":[]})", "solids"},
        BadScene{"Touching", replaced(replaced(kGood, "-1.25", "1.2"), "0.5", "0.1"), "solids[1]"},
        BadScene{"RepeatedKey", replaced(kGood, "\"seed\":\"7\"", "\"floor\":\"gray\""), "floor"},
        BadScene{"NotJson", kGood.substr(0, 40), "bad.json"},
        BadScene{"NotAnObject", "[1]", "bad.json"}),
    [](const auto& row) { return std::string(row.param.name); });

TEST(SceneJson, RefusesFiveSolids) {
  std::string solids;
  for (int i = 0; i < 5; ++i) {
    solids += std::string(i > 0 ? "," : "") +
              R"({"kind":"cube","colour":"blue","size":"small","material":"matte","x":)" +
              std::to_string(-2.8 + 1.4 * i) + R"(,"z":0})";
  }
  EXPECT_THROW(scene_from_json(R"({"version":1,"floor":"dark","solids":[)" + solids + "]}"), Error);
}

TEST(Split, NamesAreReadAndOthersRefused) {
  EXPECT_EQ(parse_split("train"), SceneSplit::kTrain);
  EXPECT_EQ(parse_split("val"), SceneSplit::kVal);
  EXPECT_EQ(parse_split("holdout"), SceneSplit::kHoldout);
  EXPECT_THROW(parse_split("test"), Error);
}

TEST(Split, TrainAndValNeverHoldAHeldOutCombination) {
  for (int i = 0; i < 20000; ++i) {
    ASSERT_FALSE(has_holdout(sample_scene(1, SceneSplit::kTrain, i))) << i;
  }
  for (int i = 0; i < 5000; ++i) {
    ASSERT_FALSE(has_holdout(sample_scene(1, SceneSplit::kVal, i))) << i;
  }
}

TEST(Split, EveryHoldoutSceneHoldsExactlyOne) {
  for (int i = 0; i < 5000; ++i) {
    const Scene scene = sample_scene(1, SceneSplit::kHoldout, i);
    ASSERT_EQ(std::count_if(scene.solids.begin(), scene.solids.end(), is_holdout), 1) << i;
  }
}

// The list is spread evenly: no colour, material or kind is rarer in training than its neighbours.
TEST(Split, HoldoutListIsBalanced) {
  std::map<SolidColour, int> colours;
  std::map<SolidMaterial, int> materials;
  std::map<SolidKind, int> kinds;
  for (const HoldoutCombination& held : holdout_combinations()) {
    ++colours[held.colour];
    ++materials[held.material];
    ++kinds[held.kind];
  }
  EXPECT_EQ(colours.size(), 8u);
  for (const auto& [colour, count] : colours) EXPECT_EQ(count, 1) << name_of(colour);
  for (const auto& [material, count] : materials) EXPECT_EQ(count, 4) << name_of(material);
  for (const auto& [kind, count] : kinds) EXPECT_EQ(count, 2) << name_of(kind);
}

// Chi-squared of 56 equally likely combinations over the solids of 20,000 one-solid scenes; the
// limit is the 1 - 1e-6 quantile at 55 degrees of freedom.
TEST(Sample, TrainingCombinationsAreEquallyCommon) {
  std::map<std::tuple<SolidColour, SolidMaterial, SolidKind>, int> seen;
  int total = 0;
  for (int i = 0; i < 20000; ++i) {
    const Scene scene = sample_scene(2, SceneSplit::kTrain, i);
    if (scene.solids.size() != 1) continue;
    const Solid& solid = scene.solids[0];
    ++seen[{solid.colour, solid.material, solid.kind}];
    ++total;
  }
  ASSERT_EQ(seen.size(), 56u);
  const double expected = total / 56.0;
  double chi_squared = 0.0;
  for (const auto& [combination, count] : seen) {
    chi_squared += (count - expected) * (count - expected) / expected;
  }
  EXPECT_LT(chi_squared, 118.0);
}

TEST(Sample, EveryWordOccursInEverySplit) {
  for (int split = 0; split < 3; ++split) {
    std::set<int> counts, floors, kinds, colours, sizes, materials;
    for (int i = 0; i < 400; ++i) {
      const Scene scene = sample_scene(4, static_cast<SceneSplit>(split), i);
      counts.insert(static_cast<int>(scene.solids.size()));
      floors.insert(static_cast<int>(scene.floor));
      for (const Solid& solid : scene.solids) {
        kinds.insert(static_cast<int>(solid.kind));
        colours.insert(static_cast<int>(solid.colour));
        sizes.insert(static_cast<int>(solid.size));
        materials.insert(static_cast<int>(solid.material));
      }
    }
    EXPECT_EQ(counts, (std::set<int>{1, 2, 3, 4}));
    EXPECT_EQ(floors.size(), 4u);
    EXPECT_EQ(kinds.size(), 4u);
    EXPECT_EQ(colours.size(), 8u);
    EXPECT_EQ(sizes.size(), 2u);
    EXPECT_EQ(materials.size(), 2u);
  }
}

TEST(Sample, SolidsStandApartInOrderAndNoTwoAreAlike) {
  for (int i = 0; i < 2000; ++i) {
    const Scene scene = sample_scene(6, static_cast<SceneSplit>(i % 3), i);
    for (std::size_t a = 0; a < scene.solids.size(); ++a) {
      for (std::size_t b = a + 1; b < scene.solids.size(); ++b) {
        const Solid& left = scene.solids[a];
        const Solid& right = scene.solids[b];
        // 8 pixels of an image 64 wide, less rounding.
        EXPECT_GE(world::screen_x(right) - world::screen_x(left), 0.25f);
        EXPECT_TRUE(world::apart_on_ground(left, right, world::kGroundGap));
        EXPECT_FALSE(left.kind == right.kind && left.colour == right.colour &&
                     left.size == right.size && left.material == right.material);
      }
    }
  }
}

TEST(Sample, SeedsSplitsAndIndicesAreUnrelated) {
  std::set<std::string> scenes;
  for (std::uint64_t seed : {0u, 1u, 2u}) {
    for (int split = 0; split < 3; ++split) {
      for (std::uint64_t index : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1} << 40}) {
        scenes.insert(scene_to_json(sample_scene(seed, static_cast<SceneSplit>(split), index)));
      }
    }
  }
  EXPECT_EQ(scenes.size(), 27u);
}

}  // namespace
}  // namespace tessera::scene_test
