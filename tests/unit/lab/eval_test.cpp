// Marks of an image on hand-made cases, and the bootstrap against what is known about it.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "apps/lab/eval/eval_statistics.h"
#include "apps/lab/scorer/attributes.h"
#include "engine/core/philox.h"

namespace tessera::eval_test {
namespace {

constexpr SolidAttributes kRedBall{SolidKind::kSphere, SolidColour::kRed, SolidSize::kLarge,
                                   SolidMaterial::kShiny};
constexpr SolidAttributes kBlueCube{SolidKind::kCube, SolidColour::kBlue, SolidSize::kSmall,
                                    SolidMaterial::kMatte};
constexpr SolidAttributes kCyanCone{SolidKind::kCone, SolidColour::kCyan, SolidSize::kLarge,
                                    SolidMaterial::kMatte};

SceneAttributes scene(std::vector<SolidAttributes> solids, FloorKind floor = FloorKind::kGray) {
  return {floor, std::move(solids)};
}

void expect_marks(const Marks& marks, std::array<double, kMarks> want) {
  for (std::size_t i = 0; i < kMarks; ++i) {
    EXPECT_DOUBLE_EQ(marks.value[i], want[i]) << name_of(static_cast<Mark>(i));
  }
}

TEST(Marks, EverythingRight) {
  const SceneAttributes truth = scene({kRedBall, kBlueCube});
  expect_marks(score_scene(truth, truth), {1, 1, 1, 1, 1, 1, 1, 1});
}

TEST(Marks, OneWrongAttributeIsThatAttributeAndTheScene) {
  const SceneAttributes truth = scene({kRedBall, kBlueCube});
  SceneAttributes seen = truth;
  seen.solids[1].colour = SolidColour::kGreen;
  expect_marks(score_scene(seen, truth), {1, 1, 1, 0.5, 1, 1, kNotAsked, 0});
  seen = truth;
  seen.floor = FloorKind::kDark;
  expect_marks(score_scene(seen, truth), {1, 0, 1, 1, 1, 1, 1, 0});
  seen = truth;
  seen.solids[0].kind = SolidKind::kCone;
  expect_marks(score_scene(seen, truth), {1, 1, 0.5, 1, 1, 1, kNotAsked, 0});
  seen = truth;
  seen.solids[0].size = SolidSize::kSmall;
  expect_marks(score_scene(seen, truth), {1, 1, 1, 1, 0.5, 1, kNotAsked, 0});
  seen = truth;
  seen.solids[0].material = SolidMaterial::kMatte;
  expect_marks(score_scene(seen, truth), {1, 1, 1, 1, 1, 0.5, kNotAsked, 0});
}

TEST(Marks, SwappedSolidsAreTheRightSetInTheWrongOrder) {
  const Marks marks = score_scene(scene({kBlueCube, kRedBall}), scene({kRedBall, kBlueCube}));
  EXPECT_EQ(marks[Mark::kCount], 1.0);
  EXPECT_EQ(marks[Mark::kKind], 0.0);
  EXPECT_EQ(marks[Mark::kOrder], 0.0);
  EXPECT_EQ(marks[Mark::kScene], 0.0);
}

TEST(Marks, MissingAndSurplusSolids) {
  const SceneAttributes two = scene({kRedBall, kBlueCube});
  const SceneAttributes three = scene({kRedBall, kBlueCube, kCyanCone});
  expect_marks(score_scene(two, three), {0, 1, 2.0 / 3, 2.0 / 3, 2.0 / 3, 2.0 / 3, kNotAsked, 0});
  expect_marks(score_scene(three, two), {0, 1, 1, 1, 1, 1, kNotAsked, 0});
}

TEST(Marks, MismatchedPairsOfTheWorldFail) {
  int accepted = 0;
  int pairs = 0;
  for (std::uint64_t i = 0; i < 500; ++i) {
    const SceneAttributes a = attributes_of(sample_scene(5, SceneSplit::kVal, i));
    const SceneAttributes b = attributes_of(sample_scene(5, SceneSplit::kVal, i + 1));
    if (a == b) continue;
    ++pairs;
    accepted += score_scene(a, b)[Mark::kScene] == 1.0 ? 1 : 0;
    EXPECT_EQ(score_scene(a, a)[Mark::kScene], 1.0);
  }
  EXPECT_GT(pairs, 450);
  EXPECT_EQ(accepted, 0);
}

TEST(Bootstrap, KnownCases) {
  const std::vector<double> ones(50, 1.0);
  const Interval sure = bootstrap_mean(ones);
  EXPECT_EQ(sure.mean, 1.0);
  EXPECT_EQ(sure.low, 1.0);
  EXPECT_EQ(sure.high, 1.0);
  const std::vector<double> mixed = {1.0, kNotAsked, 0.0, kNotAsked, 1.0, 0.0};
  EXPECT_EQ(bootstrap_mean(mixed).count, 4);
  EXPECT_EQ(bootstrap_mean(mixed).mean, 0.5);
  EXPECT_EQ(bootstrap_mean(std::vector<double>{kNotAsked}).count, 0);
  EXPECT_EQ(bootstrap_all(std::vector<double>{-2.0, -4.0}).mean, -3.0);
}

// 200 coin throws with 150 heads: the normal approximation gives 0.75 +- 0.060.
TEST(Bootstrap, WidthOfABinomial) {
  std::vector<double> values(200, 0.0);
  for (std::size_t i = 0; i < 150; ++i) values[i] = 1.0;
  const Interval interval = bootstrap_mean(values);
  EXPECT_NEAR(interval.low, 0.690, 0.012);
  EXPECT_NEAR(interval.high, 0.810, 0.012);
  EXPECT_EQ(bootstrap_mean(values).low, interval.low) << "the same values, the same interval";
  EXPECT_NE(bootstrap_mean(values, 2000, 2).low, 0.0);
}

// The interval covers the true mean about 95 times in 100.
TEST(Bootstrap, Covers) {
  int covered = 0;
  constexpr int kTrials = 300;
  for (std::uint32_t trial = 0; trial < kTrials; ++trial) {
    std::vector<double> values;
    for (std::uint32_t i = 0; i < 100; ++i) {
      const PhiloxBlock block = philox4x32({i, 0, 0, 0}, {trial, 99});
      values.push_back(uniform_open(block[0]) < 0.7f ? 1.0 : 0.0);
    }
    const Interval interval = bootstrap_mean(values, 400, trial);
    covered += interval.low <= 0.7 && 0.7 <= interval.high ? 1 : 0;
  }
  EXPECT_GT(covered, kTrials * 90 / 100);
  EXPECT_LT(covered, kTrials);
}

TEST(Psnr, ByHand) {
  const std::vector<std::uint8_t> a = {0, 100, 200, 255};
  const std::vector<std::uint8_t> b = {1, 99, 201, 254};
  EXPECT_NEAR(psnr(a, b), 20.0 * std::log10(255.0), 1e-12);  // mean squared error 1
  EXPECT_EQ(psnr(a, a), 99.0);
}

TEST(Report, TableAndJson) {
  const SceneAttributes truth = scene({kRedBall, kBlueCube});
  SceneAttributes wrong = truth;
  wrong.solids[0].colour = SolidColour::kWhite;
  const std::vector<Marks> marks = {score_scene(truth, truth), score_scene(wrong, truth)};
  const EvalRow row = summarise("val", marks);
  EXPECT_EQ(row.images, 2);
  EXPECT_EQ(row[Mark::kColour].mean, 0.75);
  EXPECT_EQ(row[Mark::kOrder].count, 1);
  EXPECT_EQ(row[Mark::kScene].mean, 0.5);
  const std::string table = markdown_table(std::vector<EvalRow>{row});
  EXPECT_NE(table.find("| val | 2 | 100.0 (100.0-100.0) |"), std::string::npos) << table;
  const nlohmann::ordered_json json = row_json(row);
  EXPECT_EQ(json["row"], "val");
  EXPECT_EQ(json["colour"]["mean"], 0.75);
  EXPECT_EQ(json["order"]["asked"], 1);
}

}  // namespace
}  // namespace tessera::eval_test
