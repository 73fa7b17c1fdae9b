// The drawing: fixed functions are accurate and fixed, draws follow the law (chi-squared), noise is
// addressed by seed, item, position and id alone, and wrong noise is noticed.
#include "engine/sampling/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>
#include <vector>

#include "engine/sampling/law.h"

namespace tessera {
namespace {

// Distance in units in the last place of `want`.
double ulps(double got, long double want) {
  const double rounded = static_cast<double>(want);
  const double unit = std::nextafter(std::fabs(rounded), INFINITY) - std::fabs(rounded);
  return static_cast<double>(std::fabs(static_cast<long double>(got) - want)) / unit;
}

TEST(FixedMath, LogarithmIsAccurate) {
  double worst = 0;
  for (std::uint32_t i = 0; i < 200000; ++i) {
    const PhiloxBlock bits = philox4x32({i, 0, 0, 0}, {1, 2});
    const double uniform = (static_cast<double>(bits[0]) + 0.5) * 0x1p-32;
    const double any = std::ldexp(1.0 + uniform, static_cast<int>(bits[1] % 2000) - 1000);
    for (const double x : {uniform, any, 1.0 - uniform * 1e-3, 1.0 + uniform * 0.5}) {
      worst = std::max(worst, ulps(fixed_log(x), std::log(static_cast<long double>(x))));
    }
  }
  EXPECT_LT(worst, 2.0);
  EXPECT_EQ(fixed_log(1.0), 0.0);
}

TEST(FixedMath, ExponentialIsAccurate) {
  double worst = 0;
  for (std::uint32_t i = 0; i < 200000; ++i) {
    const PhiloxBlock bits = philox4x32({i, 0, 0, 0}, {3, 4});
    const double x = (static_cast<double>(bits[0]) * 0x1p-32 - 0.5) * (i % 2 == 0 ? 1400.0 : 8.0);
    worst = std::max(worst, ulps(fixed_exp(x), std::exp(static_cast<long double>(x))));
  }
  EXPECT_LT(worst, 2.0);
  EXPECT_EQ(fixed_exp(0.0), 1.0);
  EXPECT_EQ(fixed_exp(-1000.0), 0.0);
}

// The bits themselves are part of the promise that a seed keeps its picture.
TEST(FixedMath, BitsDoNotChange) {
  std::uint64_t hash = 1469598103934665603ull;
  const auto mix = [&](double value) {
    hash = (hash ^ std::bit_cast<std::uint64_t>(value)) * 1099511628211ull;
  };
  for (std::int32_t id = 0; id < 5000; ++id) mix(GumbelNoise(7, 1, 3)(id));
  for (int i = -300; i < 300; ++i) mix(fixed_exp(i * 0.37));
  EXPECT_EQ(hash, 13125649842283677868ull);
}

// Critical value of chi-squared at about one in a million (Wilson & Hilferty 1931).
double chi_squared_limit(double freedom) {
  const double a = 2.0 / (9.0 * freedom);
  return freedom * std::pow(1.0 - a + 4.75 * std::sqrt(a), 3);
}

struct Fit {
  double statistic = 0, limit = 0;
};

// 10^5 draws at 10^5 positions under a law of 37 ids, sharpened by top-k and top-p.
template <typename MakeNoise>
Fit draw_and_compare(MakeNoise make_noise) {
  constexpr int kIds = 37;
  std::vector<float> cond(kIds), uncond(kIds);
  for (int i = 0; i < kIds; ++i) {
    cond[i] = static_cast<float>(std::sin(i * 1.7) * 1.3);
    uncond[i] = static_cast<float>(std::cos(i * 0.9));
  }
  LawPipeline<float> law({.guidance = 1.5, .temperature = 0.9, .top_k = 30, .top_p = 0.97}, kIds);
  law.process(cond, uncond);
  const std::vector<float> p(law.probabilities().begin(), law.probabilities().end());
  std::vector<double> counts(kIds, 0);
  constexpr std::uint32_t kDraws = 100000;
  for (std::uint32_t position = 0; position < kDraws; ++position) {
    auto noise = make_noise(position);
    counts[gumbel_argmax(law.support(), law.support_logits(), noise, GumbelNoise::kLargest)] += 1;
  }
  Fit fit;
  int cells = 0;
  for (int i = 0; i < kIds; ++i) {
    if (p[i] == 0) {
      EXPECT_EQ(counts[i], 0) << "an id outside the support was drawn";
      continue;
    }
    const double want = static_cast<double>(p[i]) * kDraws;
    EXPECT_GT(want, 5.0);
    fit.statistic += (counts[i] - want) * (counts[i] - want) / want;
    ++cells;
  }
  fit.limit = chi_squared_limit(cells - 1);
  return fit;
}

TEST(Sampler, DrawsFollowTheLaw) {
  for (const std::uint64_t seed : {0ull, 1ull, 123456789ull, ~0ull}) {
    const Fit by_position =
        draw_and_compare([&](std::uint32_t position) { return GumbelNoise(seed, 0, position); });
    EXPECT_LT(by_position.statistic, by_position.limit) << seed;
    const Fit by_item =
        draw_and_compare([&](std::uint32_t position) { return GumbelNoise(seed, position, 5); });
    EXPECT_LT(by_item.statistic, by_item.limit) << seed;
    const Fit by_seed =
        draw_and_compare([&](std::uint32_t position) { return GumbelNoise(position, seed, 5); });
    EXPECT_LT(by_seed.statistic, by_seed.limit) << seed;
  }
}

TEST(Sampler, WrongNoiseIsNoticed) {
  const auto exceeds = [](auto make_noise) {
    const Fit fit = draw_and_compare(make_noise);
    return fit.statistic > fit.limit;
  };
  EXPECT_TRUE(exceeds([](std::uint32_t position) {  // neighbours share their noise
    return [noise = GumbelNoise(1, 0, position)](std::int32_t id) mutable { return noise(id / 2); };
  }));
  EXPECT_TRUE(exceeds([](std::uint32_t position) {  // the sign is turned
    return [noise = GumbelNoise(1, 0, position)](std::int32_t id) mutable { return -noise(id); };
  }));
  EXPECT_TRUE(exceeds([](std::uint32_t position) {  // uniform, not Gumbel
    return [noise = GumbelNoise(1, 0, position)](std::int32_t id) mutable {
      return std::exp(-std::exp(-noise(id)));
    };
  }));
  EXPECT_TRUE(exceeds([](std::uint32_t position) {  // one position for all
    return GumbelNoise(1, 0, position / 8);
  }));
}

TEST(Sampler, PassingOverHopelessIdsChangesNothing) {
  std::vector<float> logits(500);
  LawPipeline<float> law({}, 500);
  for (std::uint32_t position = 0; position < 2000; ++position) {
    for (std::size_t i = 0; i < logits.size(); ++i) {
      logits[i] = static_cast<float>(30 * std::sin(static_cast<double>(i * i + position)));
    }
    law.process(logits, {});
    GumbelNoise quick(3, 4, position), full(3, 4, position);
    EXPECT_EQ(gumbel_argmax(law.support(), law.support_logits(), quick, GumbelNoise::kLargest),
              gumbel_argmax(law.support(), law.support_logits(), full, 1e300));
  }
}

TEST(Sampler, NoiseIsBoundedAndAddressed) {
  std::set<double> seen;
  for (std::int32_t id = 0; id < 64; ++id) {
    GumbelNoise noise(5, 6, 7);
    const double alone = noise(id);
    GumbelNoise in_turn(5, 6, 7);
    double last = 0;
    for (std::int32_t i = 0; i <= id; ++i) last = in_turn(i);
    EXPECT_EQ(alone, last) << "the order of asking shows";
    EXPECT_LT(alone, GumbelNoise::kLargest);
    for (const double other :
         {GumbelNoise(6, 6, 7)(id), GumbelNoise(5, 7, 7)(id), GumbelNoise(5, 6, 8)(id), alone}) {
      EXPECT_TRUE(seen.insert(other).second) << "two addresses share a number";
    }
  }
  const double largest = -fixed_log(-fixed_log((4294967295.0 + 0.5) * 0x1p-32));
  EXPECT_LT(largest, GumbelNoise::kLargest);
  EXPECT_TRUE(std::isfinite(-fixed_log(-fixed_log(0.5 * 0x1p-32))));
}

}  // namespace
}  // namespace tessera
