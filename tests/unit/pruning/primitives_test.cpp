// Primitives against plain loops in double.
#include "vision/pruning/primitives.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cfenv>

#include "tests/support/pruning_chain.h"

namespace tessera::primitives_test {
namespace {

double plain_dot(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

TEST(Primitives, DotIsCloseAndSymmetric) {
  for (const std::size_t n : {0u, 1u, 7u, 8u, 9u, 64u, 1001u}) {
    const auto a = noise_list(1, n), b = noise_list(2, n);
    EXPECT_EQ(dot(a, b), dot(b, a));
    EXPECT_NEAR(dot(a, b), plain_dot(a, b), 1e-6 * std::sqrt(static_cast<double>(n) + 1)) << n;
  }
}

TEST(Primitives, NormalisedRowsHaveLengthOneAndZeroRowsStay) {
  PruneScratch scratch;
  auto values = noise_list(3, 5 * 6);
  std::fill(values.begin() + 6, values.begin() + 12, 0.0f);
  const std::vector<std::int64_t> rows = {4, 1, 0};
  const MatrixView unit = normalised_rows(matrix(values, 6), rows, scratch);
  ASSERT_EQ(unit.rows, 3);
  EXPECT_NEAR(plain_dot(unit.row(0), unit.row(0)), 1, 1e-6);
  EXPECT_EQ(plain_dot(unit.row(1), unit.row(1)), 0);
  for (std::size_t c = 0; c < 6; ++c) {
    EXPECT_NEAR(
        unit.row(0)[c] * std::sqrt(plain_dot(matrix(values, 6).row(4), matrix(values, 6).row(4))),
        values[24 + c], 1e-6);
  }
}

TEST(Primitives, HeadMean) {
  PruneScratch scratch;
  const std::vector<float> values = {1, 2, 3, 4, 5, 6, /**/ 7, 8, 9, 10, 11, 12};
  const std::vector<std::int64_t> rows = {1, 0};
  const MatrixView mean = head_mean_rows(matrix(values, 6), 3, rows, scratch);
  EXPECT_EQ(std::vector<float>(mean.data, mean.data + 4), (std::vector<float>{9, 10, 3, 4}));
}

TEST(Primitives, GramIsAllProducts) {
  const auto values = noise_list(4, 7 * 5);
  std::vector<float> out(49);
  gram(matrix(values, 5), out);
  for (std::int64_t i = 0; i < 7; ++i) {
    for (std::int64_t j = 0; j < 7; ++j) {
      EXPECT_NEAR(out[static_cast<std::size_t>(i * 7 + j)],
                  plain_dot(matrix(values, 5).row(i), matrix(values, 5).row(j)), 1e-6);
      EXPECT_EQ(out[static_cast<std::size_t>(i * 7 + j)], out[static_cast<std::size_t>(j * 7 + i)]);
    }
  }
}

TEST(Primitives, TopPlacesTieToTheLowerIndexAndPutNaNLast) {
  PruneScratch scratch;
  const float nan = std::nanf("");
  const auto top = [&](const std::vector<float>& scores, std::int64_t k) {
    const auto span = top_places(scores, k, scratch);
    return std::vector<TokenIndex>(span.begin(), span.end());
  };
  EXPECT_EQ(top({1, 5, 5, 5, 0}, 2), (std::vector<TokenIndex>{1, 2}));
  EXPECT_EQ(top({nan, -1, nan, -2}, 3), (std::vector<TokenIndex>{0, 1, 3}));
  EXPECT_EQ(top({nan, -HUGE_VALF}, 1), (std::vector<TokenIndex>{1}));
  EXPECT_EQ(top({0.0f, -0.0f}, 1), (std::vector<TokenIndex>{0}));
  EXPECT_EQ(top({3, 4}, 9), (std::vector<TokenIndex>{0, 1})) << "clamped";
  EXPECT_TRUE(top({3, 4}, 0).empty());
  EXPECT_TRUE(top({}, 3).empty());
}

TEST(Primitives, TopPlacesAgainstCounting) {
  PruneScratch scratch;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    std::vector<float> scores = noise_list(seed, 40);
    for (float& s : scores) s = std::round(s * 4);  // many ties
    const auto k = static_cast<std::int64_t>(seed % 41);
    std::vector<TokenIndex> want;
    for (TokenIndex i = 0; i < 40; ++i) {
      std::int64_t ahead = 0;
      for (TokenIndex j = 0; j < 40; ++j) {
        const float a = scores[static_cast<std::size_t>(j)],
                    b = scores[static_cast<std::size_t>(i)];
        if (a > b || (a == b && j < i)) ++ahead;
      }
      if (ahead < k) want.push_back(i);
    }
    const auto got = top_places(scores, k, scratch);
    EXPECT_EQ(std::vector<TokenIndex>(got.begin(), got.end()), want);
  }
}

TEST(Primitives, BipartiteMaxAgainstAllPairs) {
  PruneScratch scratch;
  const auto values = noise_list(5, 20 * 3);
  const MatrixView x = matrix(values, 3);
  const std::vector<std::int64_t> a = {3, 0, 19, 7}, b = {4, 1, 12, 11, 5};
  const auto matches = bipartite_max(x, a, b, scratch);
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (std::size_t j = 0; j < b.size(); ++j) {
      EXPECT_LE(plain_dot(x.row(a[i]), x.row(b[j])), matches[i].similarity + 1e-6);
    }
    EXPECT_NEAR(plain_dot(x.row(a[i]), x.row(b[static_cast<std::size_t>(matches[i].place)])),
                matches[i].similarity, 1e-6);
  }
  // Equal partners: the earlier place; none: -1.
  const std::vector<float> same = {1, 0, 1, 0, 1, 0};
  const std::vector<std::int64_t> first = {0}, twins = {2, 1}, none;
  EXPECT_EQ(bipartite_max(matrix(same, 2), first, twins, scratch)[0].place, 0);
  EXPECT_EQ(bipartite_max(matrix(same, 2), first, none, scratch)[0].place, -1);
}

TEST(Primitives, ScatterCombineByRule) {
  const std::vector<float> x = {1, 10, 2, 20, 4, 40, 8, 80};
  const std::vector<TokenIndex> order = {2, 0};
  const std::vector<Merge> merges = {{3, 0}, {1, 0}};
  const std::vector<float> sizes = {2, 3, 1, 5};
  const auto run = [&](MergeRule rule) {
    std::vector<float> out(4);
    scatter_combine(matrix(x, 2), order, merges, rule,
                    rule == MergeRule::kSizeWeightedMean ? std::span<const float>(sizes)
                                                         : std::span<const float>(),
                    out);
    return out;
  };
  const float mean = (1.0f + 2 + 8) / 3;
  EXPECT_EQ(run(MergeRule::kMean)[0], 4.0f);
  EXPECT_FLOAT_EQ(run(MergeRule::kMean)[2], mean);
  EXPECT_FLOAT_EQ(run(MergeRule::kSizeWeightedMean)[2], (2 * 1 + 3 * 2 + 5 * 8) / 10.0f);
  EXPECT_FLOAT_EQ(run(MergeRule::kSizeWeightedMean)[3], (2 * 10 + 3 * 20 + 5 * 80) / 10.0f);
  EXPECT_FLOAT_EQ(run(MergeRule::kCentrePlusMean)[2], 1 + (2 + 8) / 2.0f);
}

TEST(Primitives, ScatterCombineDoesNotDependOnTheOrderOfTheList) {
  const auto x = noise_list(6, 30 * 4);
  std::vector<Merge> merges;
  for (TokenIndex i = 3; i < 30; ++i) merges.push_back({i, i % 3});
  const std::vector<TokenIndex> order = {0, 1, 2};
  std::vector<float> forward(12), backward(12);
  scatter_combine(matrix(x, 4), order, merges, MergeRule::kMean, {}, forward);
  std::reverse(merges.begin(), merges.end());
  scatter_combine(matrix(x, 4), order, merges, MergeRule::kMean, {}, backward);
  EXPECT_EQ(forward, backward);
}

TEST(Primitives, EntropyRatio) {
  EXPECT_EQ(entropy_ratio(std::vector<float>{}), 1);
  EXPECT_EQ(entropy_ratio(std::vector<float>{1}), 1);
  EXPECT_NEAR(entropy_ratio(std::vector<float>(64, 1.0f / 64)), 1, 1e-14);
  EXPECT_EQ(entropy_ratio(std::vector<float>{0, 1, 0, 0}), 0);
  EXPECT_NEAR(entropy_ratio(std::vector<float>{0.5f, 0.5f, 0, 0}), 0.5, 1e-12);
  EXPECT_TRUE(std::isfinite(entropy_ratio(std::vector<float>{1, 1e-40f, 0})));
}

TEST(Primitives, KneeTakesTheFirstOfEquals) {
  const std::vector<float> curve = {9, 8, 7, 2, 1, 1, 1, 1, 1, 0};
  EXPECT_EQ(knee(curve, KneeAxes::kRaw), 3);
  EXPECT_EQ(knee(curve, KneeAxes::kNormalised), 3);
  EXPECT_EQ(knee(std::vector<float>{}, KneeAxes::kRaw), -1);
  EXPECT_EQ(knee(std::vector<float>{5}, KneeAxes::kRaw), 0);
  EXPECT_EQ(knee(std::vector<float>(6, 2.0f), KneeAxes::kRaw), 0);
  EXPECT_EQ(knee(std::vector<float>(6, 2.0f), KneeAxes::kNormalised), 0);
}

// The distance itself, by the formula of a point and a line.
TEST(Primitives, KneeAgainstDistances) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    std::vector<float> curve = noise_list(seed, 12);
    std::sort(curve.begin(), curve.end(), std::greater<>());
    const double dx = 11, dy = static_cast<double>(curve.back()) - curve.front();
    std::int64_t best = 0;
    double farthest = 0;
    for (std::size_t i = 0; i < curve.size(); ++i) {
      const double y = static_cast<double>(curve[i]) - curve.front();
      const double distance = std::abs(dx * y - dy * static_cast<double>(i)) / std::hypot(dx, dy);
      if (distance > farthest + 1e-12) farthest = distance, best = static_cast<std::int64_t>(i);
    }
    EXPECT_EQ(knee(curve, KneeAxes::kRaw), best) << seed;
  }
}

TEST(Primitives, RoundHalfEvenUnderAnyMode) {
  for (const int mode : {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
    std::fesetround(mode);
    const auto a = round_half_even(2.5), b = round_half_even(3.5), c = round_half_even(-0.5);
    const auto d = round_half_even(56.448);
    EXPECT_EQ(std::fegetround(), mode);
    std::fesetround(FE_TONEAREST);
    EXPECT_EQ(a, 2);
    EXPECT_EQ(b, 4);
    EXPECT_EQ(c, 0);
    EXPECT_EQ(d, 56);
  }
  EXPECT_EQ(round_by(99.99999999999, Rounding::kFloor), 100) << "a whole number on paper";
  EXPECT_EQ(round_by(99.9, Rounding::kFloor), 99);
  EXPECT_EQ(round_by(2.0000000000001, Rounding::kCeil), 2);
  EXPECT_EQ(round_by(2.1, Rounding::kCeil), 3);
}

TEST(Scratch, HoldsWhatWasTakenAndReusesIt) {
  PruneScratch scratch;
  const auto first = scratch.take<float>(10, 3.0f);
  std::size_t held = 0;
  for (int round = 0; round < 3; ++round) {
    const ScratchScope scope(scratch);
    const auto large = scratch.take<double>(100000, 1.0);
    const auto small = scratch.take<std::uint8_t>(3, 7);
    EXPECT_EQ(large[99999], 1.0);
    EXPECT_EQ(small[2], 7);
    if (round == 0) held = scratch.capacity();
    EXPECT_EQ(scratch.capacity(), held);
  }
  EXPECT_TRUE(std::all_of(first.begin(), first.end(), [](float v) { return v == 3.0f; }));
}

}  // namespace
}  // namespace tessera::primitives_test
