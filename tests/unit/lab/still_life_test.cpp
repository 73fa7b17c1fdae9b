// World 2: sets that depend on their arguments alone, JSON both ways and what is refused, relations
// that hold, captions that say what is true, packs that are read or refused.
#include "apps/lab/still_life/still_life.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "apps/lab/still_life/caption.h"
#include "apps/lab/still_life/render.h"
#include "apps/lab/still_life/stage.h"
#include "apps/lab/still_life/still_set.h"
#include "engine/core/error.h"
#include "tests/support/things_pack.h"

namespace tessera::still_life_test {
namespace {

using namespace still;

SceneSplit split_of(int i) {
  return i % 3 == 0 ? SceneSplit::kTrain : i % 3 == 1 ? SceneSplit::kVal : SceneSplit::kHoldout;
}

std::uint64_t hash_of(const std::vector<std::uint8_t>& bytes) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const std::uint8_t byte : bytes) hash = (hash ^ byte) * 0x100000001b3u;
  return hash;
}

class StillLifeWorld : public ::testing::Test {
 protected:
  const Things things_ = parse_things(small_pack(), "small.pack");
  StillLife sample(int i) const { return sample_still_life(11, split_of(i), i, things_); }
};

TEST_F(StillLifeWorld, BytesDependOnTheArgumentsAlone) {
  ThreadPool one(1), many(5);
  const SceneSetRequest request{
      .seed = 4, .split = SceneSplit::kVal, .start = 30, .count = 20, .size = 48};
  std::vector<std::string> lines;
  std::vector<std::vector<std::uint8_t>> images;
  for_each_still_life(request, things_, one, [&](const Record& record) {
    lines.push_back(record_to_json(record));
    images.push_back(record.image.rgb);
  });
  std::size_t at = 0;
  for_each_still_life(request, things_, many, [&](const Record& record) {
    EXPECT_EQ(record_to_json(record), lines[at]);
    EXPECT_EQ(record.image.rgb, images[at++]);
  });
  EXPECT_EQ(at, 20u);
  EXPECT_EQ(make_record(request, things_, 37).image.rgb, images[7]);
  EXPECT_EQ(std::set<std::string>(lines.begin(), lines.end()).size(), 20u);
}

// A model learns from these bytes: whoever changes them makes another world.
TEST_F(StillLifeWorld, BytesAreThoseOfTheFirstTraining) {
  const auto hash = [&](int i, int size) { return hash_of(render(sample(i), things_, size).rgb); };
  EXPECT_EQ(hash(0, 64), 0xc9fddfa1eacc0fe1u);
  EXPECT_EQ(hash(1, 128), 0x2ca1a5eb0b7a6b56u);
  EXPECT_EQ(hash(5, 256), 0x65aea1134eafbbf5u);
}

TEST_F(StillLifeWorld, EverySampledSceneSurvivesTheRoundTrip) {
  for (int i = 0; i < 2000; ++i) {
    const StillLife scene = sample(i);
    EXPECT_EQ(still_life_from_json(to_json(scene), things_), scene) << to_json(scene);
  }
}

TEST_F(StillLifeWorld, ObjectsInAnyOrderAreListedLeftToRight) {
  for (int i = 0; i < 50; ++i) {
    const StillLife scene = sample(i);
    StillLife shuffled = scene;
    std::reverse(shuffled.objects.begin(), shuffled.objects.end());
    EXPECT_EQ(still_life_from_json(to_json(shuffled), things_), scene);
  }
}

TEST_F(StillLifeWorld, SplitsKeepTheirCombinationsApart) {
  int held_out_things = 0;
  for (int i = 0; i < 6000; ++i) {
    const StillLife scene = sample(i);
    const auto held =
        std::count_if(scene.objects.begin(), scene.objects.end(),
                      [&](const Object& o) { return is_holdout(o, scene.table, scene.sky); });
    EXPECT_EQ(held, split_of(i) == SceneSplit::kHoldout ? 1 : 0);
    for (const Object& o : scene.objects) {
      held_out_things += !o.thing.empty() && is_holdout(o, scene.table, scene.sky) ? 1 : 0;
    }
  }
  EXPECT_GT(held_out_things, 20);
}

TEST_F(StillLifeWorld, EveryAttributeIsDrawn) {
  std::map<std::string, int> seen;
  for (int i = 0; i < 6000; ++i) {
    const StillLife scene = sample(i);
    for (const std::string_view name :
         {name_of(scene.table), name_of(scene.sky), name_of(scene.lamp)}) {
      ++seen[std::string(name)];
    }
    EXPECT_TRUE(is_table_colour(scene.table_colour));
    for (const Object& o : scene.objects) {
      ++seen[o.thing.empty() ? "a " + std::string(name_of(o.colour)) : o.thing];
      if (o.thing.empty()) ++seen[std::string(name_of(o.surface)) + " solid"];
    }
  }
  EXPECT_EQ(seen.size(), kSurfaces * 2u + kSkies + kLamps + kColours + things_.size());
  for (const auto& [name, count] : seen) EXPECT_GT(count, 100) << name;
}

// Each object is seen where it is said to be, and enough of it.
TEST_F(StillLifeWorld, RelationsHoldInTheImage) {
  for (int i = 0; i < 300; ++i) {
    const StillLife scene = sample(i);
    const std::vector<double> shares = visible_shares(scene, things_, 128);
    const std::vector<std::uint8_t> ids = id_buffer(scene, things_, 128);
    double before = -1.0;
    for (std::size_t k = 0; k < scene.objects.size(); ++k) {
      EXPECT_GE(shares[k], still::kVisibleShare) << to_json(scene);
      // Alone on the table an object's middle is right of that of the one before.
      StillLife alone = scene;
      alone.objects = {scene.objects[k]};
      const std::vector<std::uint8_t> own = id_buffer(alone, things_, 128);
      int low = 128, high = -1, seen = 0;
      for (int pixel = 0; pixel < 128 * 128; ++pixel) {
        if (own[pixel] == 0) continue;
        low = std::min(low, pixel % 128);
        high = std::max(high, pixel % 128);
        seen += ids[pixel] == k + 1 ? 1 : 0;
      }
      EXPECT_GT(seen, 40) << to_json(scene);
      EXPECT_GT(low, 0);
      EXPECT_LT(high, 127);
      EXPECT_GT(0.5 * (low + high), before) << to_json(scene);
      before = 0.5 * (low + high);
    }
  }
}

TEST_F(StillLifeWorld, WhatIsInFrontHidesWhatIsBehind) {
  int hidden = 0;
  for (int i = 0; i < 400; ++i) {
    const StillLife scene = sample(i);
    const std::vector<std::uint8_t> all = id_buffer(scene, things_, 96);
    for (std::size_t k = 0; k < scene.objects.size(); ++k) {
      StillLife alone = scene;
      alone.objects = {scene.objects[k]};
      const std::vector<std::uint8_t> own = id_buffer(alone, things_, 96);
      for (std::size_t pixel = 0; pixel < own.size(); ++pixel) {
        if (own[pixel] == 0 || all[pixel] == k + 1) continue;
        ASSERT_NE(all[pixel], 0);
        const Related in_front{all[pixel] - 1, static_cast<int>(k), Relation::kBehind};
        EXPECT_FALSE(holds(scene, things_, in_front)) << to_json(scene);
        ++hidden;
      }
    }
  }
  EXPECT_GT(hidden, 1000);
}

TEST_F(StillLifeWorld, CaptionsSayWhatIsTrue) {
  std::map<std::string, int> forms;
  for (int i = 0; i < 3000; ++i) {
    const StillLife scene = sample(i);
    for (const std::string& text : {caption(scene, things_), canonical_caption(scene, things_)}) {
      const Said said = read_caption(text, things_);
      ASSERT_EQ(said.objects.size(), scene.objects.size()) << text;
      for (std::size_t k = 0; k < scene.objects.size(); ++k) {
        Object expected = scene.objects[k];
        expected.x = expected.z = 0.0;
        expected.turn = 0;
        expected.mirrored = false;
        if (!said.sizes) expected.size = said.objects[k].size;
        EXPECT_EQ(said.objects[k], expected) << text;
      }
      EXPECT_EQ(said.table, scene.table) << text;
      EXPECT_EQ(said.table_colour, scene.table_colour) << text;
      EXPECT_EQ(said.sky.value_or(scene.sky), scene.sky) << text;
      EXPECT_EQ(said.lamp.value_or(scene.lamp), scene.lamp) << text;
      for (const Related& related : said.relations) {
        EXPECT_TRUE(holds(scene, things_, related)) << text;
        ++forms["relation " + std::to_string(static_cast<int>(related.relation))];
      }
      ++forms[std::string(said.sizes ? "sizes " : "") + (said.sky ? "sky " : "") +
              (said.lamp ? "light" : "")];
    }
  }
  EXPECT_EQ(forms.size(), 8u);  // four relations, and what is said: all, no light, no size, neither
  for (const auto& [form, count] : forms) EXPECT_GT(count, 50) << form;
}

TEST_F(StillLifeWorld, OtherTextIsNoCaption) {
  for (const char* text :
       {"", "a large red wooden cube", "a large red wooden cube on a brown wooden table",
        "a red wooden dog on a brown wooden table", "an dog on a brown wooden table",
        "a dog, a red apple on a brown wooden table", "a dog on a brown wooden table ",
        "on a brown wooden table stand a small dog at night",
        "from left to right a small dog on a red cloth table at night, lit from the left, the cat "
        "behind the dog"}) {
    EXPECT_THROW(read_caption(text, things_), Error) << text;
  }
  EXPECT_EQ(read_caption("a red apple and a pair of dice on a brown wooden table", things_)
                .objects[0]
                .thing,
            "red apple");
}

TEST_F(StillLifeWorld, WithoutAPackThereAreSolidsAlone) {
  for (int i = 0; i < 300; ++i) {
    const StillLife scene = sample_still_life(3, split_of(i), i, Things{});
    for (const Object& object : scene.objects) EXPECT_EQ(object.thing, "");
    EXPECT_EQ(read_caption(caption(scene, Things{}), Things{}).objects.size(),
              scene.objects.size());
  }
}

TEST_F(StillLifeWorld, OneChangedAttributeChangesTheImage) {
  const StillLife scene = still_life_from_json(
      R"({"version":2,"seed":"7","table":{"colour":"brown","surface":"wooden"},"sky":"clear","light":"left",)"
      R"("objects":[{"kind":"cube","colour":"blue","surface":"marble","size":"small","turn":3,"x":-1.25,"z":0.5},)"
      R"({"thing":"dog","size":"large","mirrored":true,"x":1.5,"z":-0.31}]})",
      things_);
  const auto bytes = [&](const StillLife& changed) { return render(changed, things_, 64).rgb; };
  std::set<std::vector<std::uint8_t>> images = {bytes(scene)};
  std::vector<StillLife> changed(9, scene);
  changed[0].seed = 8;
  changed[1].table = Surface::kCloth;
  changed[2].table_colour = Colour::kGray;
  changed[3].sky = Sky::kSunset;
  changed[4].lamp = Lamp::kRight;
  changed[5].objects[0].surface = Surface::kMetal;
  changed[6].objects[0].turn = 50;
  changed[7].objects[1].mirrored = false;
  changed[8].objects[1].thing = "pair of dice";
  for (const StillLife& other : changed) images.insert(bytes(other));
  EXPECT_EQ(images.size(), 10u);
}

const std::string kGood =
    R"({"version":2,"seed":"7","table":{"colour":"brown","surface":"wooden"},"sky":"clear","light":"left",)"
    R"("objects":[{"kind":"cube","colour":"blue","surface":"marble","size":"small","turn":3,"x":-1.25,"z":0.5},)"
    R"({"thing":"dog","size":"large","mirrored":true,"x":1.5,"z":-0.31}]})";

struct Change {
  const char* name;
  const char* from;
  const char* to;
  const char* where;
};

class StillLifeJsonRefuses : public ::testing::TestWithParam<Change> {};

TEST_P(StillLifeJsonRefuses, WithThePlaceNamed) {
  const Change& change = GetParam();
  std::string text = kGood;
  const std::size_t at = text.find(change.from);
  ASSERT_NE(at, std::string::npos);
  text.replace(at, std::string(change.from).size(), change.to);
  const Things things = parse_things(small_pack(), "small.pack");
  EXPECT_EQ(to_json(still_life_from_json(kGood, things)), kGood);
  try {
    still_life_from_json(text, things, "bad.json");
    FAIL() << "accepted " << text;
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), 2) << error.what();
    EXPECT_NE(std::string(error.what()).find("bad.json"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find(change.where), std::string::npos) << error.what();
  }
}

INSTANTIATE_TEST_SUITE_P(
    Scenes, StillLifeJsonRefuses,
    ::testing::Values(
        Change{"Version", "\"version\":2", "\"version\":1", "version"},
        Change{"UnknownField", "\"sky\"", "\"weather\"", "weather"},
        Change{"UnknownSky", "clear", "green", "sky"},
        Change{"UnknownLight", "\"light\":\"left\"", "\"light\":\"below\"", "light"},
        Change{"TableColour", "\"brown\"", "\"purple\"", "table.colour"},
        Change{"TableSurface", "wooden", "liquid", "table.surface"},
        Change{"TableField", "\"surface\":\"wooden\"", "\"surface\":\"wooden\",\"legs\":4", "legs"},
        Change{"Surface", "marble", "jelly", "objects[0].surface"},
        Change{"Turn", "\"turn\":3", "\"turn\":100", "objects[0].turn"},
        Change{"MirroredSolid", "\"turn\":3", "\"mirrored\":true", "mirrored"},
        Change{"TurnedThing", "\"mirrored\":true", "\"turn\":3", "turn"},
        Change{"OtherThing", "\"dog\"", "\"dragon\"", "objects[1].thing"},
        Change{"OffTheTable", "\"x\":1.5", "\"x\":2.61", "objects[1].x"},
        Change{"NoSize", "\"size\":\"large\",", "", "objects[1].size"},
        Change{"Touching", "\"x\":1.5,\"z\":-0.31", "\"x\":-1,\"z\":0", "objects[1]"},
        Change{"Repeated", "\"sky\":\"clear\"", "\"sky\":\"clear\",\"sky\":\"clear\"", "sky"}),
    [](const auto& row) { return std::string(row.param.name); });

TEST(Things, AreReadAsTheyWereWritten) {
  const Things things = parse_things(small_pack(), "small.pack");
  ASSERT_EQ(things.size(), 4);
  EXPECT_EQ(things[0].name, "dog");
  EXPECT_EQ(things[1].article, "an");
  EXPECT_EQ(things.find("pair of dice")->levels.front().width, 20);
  EXPECT_EQ(things.find("cat"), nullptr);
  const Thing& apple = *things.find("red apple");
  // One pixel of the middle, under a square-root curve: (200 / 255)^2 of red.
  EXPECT_NEAR(apple.levels.front().rgba[(8 * 16 + 8) * 4], 0.6151f, 1e-3f);
  EXPECT_EQ(apple.levels.back().width, 1);
}

TEST(Things, APackThatIsCutOrChangedIsRefused) {
  const std::string good = small_pack();
  for (std::size_t size = 0; size < good.size(); size += size < 200 ? 1 : 37) {
    EXPECT_THROW(parse_things(good.substr(0, size), "cut.pack"), Error) << size;
  }
  EXPECT_THROW(parse_things(good + "x", "long.pack"), Error);
  const auto refused = [](const std::vector<PackedThing>& list, const char* expected) {
    try {
      parse_things(pack_of(list), "bad.pack");
      FAIL() << expected;
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), 2);
      EXPECT_NE(std::string(error.what()).find(expected), std::string::npos) << error.what();
    }
  };
  refused({}, "a number of things");
  refused({{"a dog", 0, 4}}, "a width");
  refused({{"a dog", 4, 257}}, "a height");
  refused({{"dog", 4, 4}}, "and a name");
  refused({{"the dog", 4, 4}}, "and a name");
  refused({{"a Dog", 4, 4}}, "and a name");
  refused({{"a dog ", 4, 4}}, "and a name");
  refused({{"a dog", 4, 4}, {"a cat", 4, 4}}, "names in order");
  refused({{"a dog", 4, 4}, {"a dog", 4, 4}}, "names in order");
  refused({{"a dog", 4, 4, 10}}, "something can be seen");
}

}  // namespace
}  // namespace tessera::still_life_test
