// The drawing: fixed functions are accurate and fixed, draws follow the distribution (chi-squared), noise is
// addressed by seed, item, position and id alone, and wrong noise is noticed.
#include "engine/sampling/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>
#include <vector>

#include "engine/sampling/dist.h"
#include "engine/sampling/randomness.h"

namespace tessera::sampler_test {
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

TEST(FixedMath, ExponentialInSinglePrecisionIsAccurate) {
  double worst = 0;
  for (std::uint32_t i = 0; i < 400000; ++i) {
    const PhiloxBlock bits = philox4x32({i, 0, 0, 0}, {5, 6});
    const double spread = i % 2 == 0 ? 174.0 : 8.0;
    const auto x = static_cast<float>((static_cast<double>(bits[0]) * 0x1p-32 - 0.5) * spread);
    const double want = std::exp(static_cast<double>(x));
    const float unit =
        std::nextafter(static_cast<float>(want), INFINITY) - static_cast<float>(want);
    worst = std::max(
        worst, std::fabs(static_cast<double>(fixed_exp(x)) - want) / static_cast<double>(unit));
  }
  EXPECT_LT(worst, 1.5);
  EXPECT_EQ(fixed_exp(0.0f), 1.0f);
  EXPECT_EQ(fixed_exp(-100.0f), 0.0f);
  EXPECT_EQ(fixed_exp(-1e30f), 0.0f);
  EXPECT_EQ(fixed_exp(100.0f), INFINITY);
}

// The bits themselves are part of the guarantee that a seed keeps its image.
TEST(FixedMath, BitsDoNotChange) {
  std::uint64_t hash = 1469598103934665603ull;
  const auto mix = [&](double value) {
    hash = (hash ^ std::bit_cast<std::uint64_t>(value)) * 1099511628211ull;
  };
  for (std::int32_t id = 0; id < 5000; ++id) mix(GumbelNoise(7, 1, 3)(id));
  for (int i = -300; i < 300; ++i) mix(fixed_exp(i * 0.37));
  EXPECT_EQ(hash, 13125649842283677868ull);
  for (int i = -300; i < 300; ++i)
    mix(static_cast<double>(fixed_exp(static_cast<float>(i) * 0.25f)));
  EXPECT_EQ(hash, 16163471950655196460ull);
}

// Critical value of chi-squared at about one in a million (Wilson & Hilferty 1931).
double chi_squared_limit(double freedom) {
  const double a = 2.0 / (9.0 * freedom);
  return freedom * std::pow(1.0 - a + 4.75 * std::sqrt(a), 3);
}

struct Fit {
  double statistic = 0, limit = 0;
};

// 10^5 draws at 10^5 positions under a distribution of 37 ids, sharpened by top-k and top-p.
template <typename MakeNoise>
Fit draw_and_compare(MakeNoise make_noise) {
  constexpr int kIds = 37;
  std::vector<float> cond(kIds), uncond(kIds);
  for (int i = 0; i < kIds; ++i) {
    cond[i] = static_cast<float>(std::sin(i * 1.7) * 1.3);
    uncond[i] = static_cast<float>(std::cos(i * 0.9));
  }
  DistributionPipeline<float> dist({.guidance = 1.5, .temperature = 0.9, .top_k = 30, .top_p = 0.97}, kIds);
  dist.process(cond, uncond);
  const std::vector<float> p(dist.probabilities().begin(), dist.probabilities().end());
  std::vector<double> counts(kIds, 0);
  constexpr std::uint32_t kDraws = 100000;
  for (std::uint32_t position = 0; position < kDraws; ++position) {
    auto noise = make_noise(position);
    const std::int32_t drawn =
        gumbel_argmax(dist.support(), dist.support_logits(), noise, GumbelNoise::kLargest);
    counts[static_cast<std::size_t>(drawn)] += 1;
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

TEST(Sampler, DrawsFollowTheDistribution) {
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
  DistributionPipeline<float> dist({}, 500);
  for (std::uint32_t position = 0; position < 2000; ++position) {
    for (std::size_t i = 0; i < logits.size(); ++i) {
      logits[i] = static_cast<float>(30 * std::sin(static_cast<double>(i * i + position)));
    }
    dist.process(logits, {});
    GumbelNoise quick(3, 4, position), quicker(3, 4, position), full(3, 4, position);
    const std::int32_t want = gumbel_argmax(dist.support(), dist.support_logits(), full, 1e300);
    EXPECT_EQ(gumbel_argmax(dist.support(), dist.support_logits(), quick, GumbelNoise::kLargest),
              want);
    EXPECT_EQ(gumbel_argmax(dist.support(), dist.support_logits(), quicker), want);
  }
}

TEST(Sampler, FourBlocksAtOnceAreThoseOneByOne) {
  for (std::uint32_t i = 0; i < 1000; ++i) {
    const PhiloxBlock any = philox4x32({i, 0, 0, 0}, {7, 8});
    const PhiloxBlock counter{any[0], any[1], any[2], i == 0 ? 0xfffffffeu : any[3]};
    const std::array<std::uint32_t, 2> key{any[3], any[0] ^ i};
    EXPECT_EQ(philox4x32_quad(counter, key), philox4x32_plain_quad(counter, key));
  }
}

// Weights of very different size, some of them zero.
std::vector<float> uneven_weights(std::uint32_t number, std::size_t count) {
  std::vector<float> out(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    const PhiloxBlock bits = philox4x32({i, number, 0, 0}, {9, 10});
    out[i] = bits[0] % 3 == 0 ? 0.0f : static_cast<float>(std::exp(-30.0 * uniform_open(bits[1])));
  }
  out[number % count] = 0.5f;
  return out;
}

TEST(Sampler, FirstClockIsTheFirstOfAll) {
  std::vector<std::int32_t> ids(500);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(2 * i + 1);
  for (std::uint32_t position = 0; position < 2000; ++position) {
    const std::vector<float> weights = uneven_weights(position, ids.size());
    GumbelNoise quick(3, 4, position), full(3, 4, position);
    std::int32_t want = -1;
    double best = INFINITY;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (!(weights[i] > 0)) continue;
      const double u = (static_cast<double>(full.bits(ids[i])) + 0.5) * 0x1p-32;
      const double rings = -fixed_log(u) / static_cast<double>(weights[i]);
      if (rings < best) {
        best = rings;
        want = ids[i];
      }
    }
    EXPECT_EQ(first_clock<float>(ids, weights, quick), want) << position;
  }
}

// Fixed bits for each id, to the ends of their range and equal ones.
struct GivenBits {
  std::vector<std::uint32_t> of;
  std::uint32_t bits(std::int32_t id) { return of[static_cast<std::size_t>(id)]; }
};

TEST(Sampler, FirstClockAtTheEndsOfItsRange) {
  const std::vector<std::int32_t> ids{0, 1, 2};
  const auto first = [&](std::vector<std::uint32_t> bits, std::vector<double> weights) {
    GivenBits noise{std::move(bits)};
    return first_clock<double>(ids, weights, noise);
  };
  constexpr std::uint32_t kMax = 0xffffffffu;
  // Ties go to the lowest id, whoever is heaviest first.
  EXPECT_EQ(first({5, 5, 5}, {1, 1, 1}), 0);
  EXPECT_EQ(first({kMax, kMax, kMax}, {0.5, 2, 2}), 1);
  // -log(u) at most bits is 2^-33: it beats a time of 1 from weights above 2^-33 on, not below.
  const std::uint32_t one = 1580030168u;  // u = 1 / e
  EXPECT_EQ(first({kMax, one, 0}, {0x1.1p-33, 1, 0}), 0);
  EXPECT_EQ(first({kMax, one, 0}, {0x1.fp-34, 1, 0}), 1);
  // What has no weight never rings, however late the others.
  EXPECT_EQ(first({kMax, 0, kMax}, {0, 1e-310, 0}), 1);
}

TEST(Sampler, BitsBelowTheTableGiveLessNoise) {
  for (double least = 0.001; least < GumbelNoise::kLargest; least += 0.013) {
    const std::uint32_t fewest = GumbelNoise::fewest_bits(least);
    if (fewest == 0) continue;
    EXPECT_LT(GumbelNoise::value(fewest - 1), least) << least;
  }
}

// One source of noise: by logits and by weights the same id wins, but for rounding of near ties.
TEST(Sampler, ClocksAndGumbelNoiseAgree) {
  std::vector<std::int32_t> ids(200);
  std::vector<float> logits(ids.size()), weights(ids.size());
  int differing = 0;
  for (std::uint32_t position = 0; position < 5000; ++position) {
    for (std::size_t i = 0; i < ids.size(); ++i) {
      ids[i] = static_cast<std::int32_t>(i);
      logits[i] = static_cast<float>(4 * std::sin(static_cast<double>(i * i + position)));
    }
    softmax_row(logits.data(), logits.size(), weights.data());
    GumbelNoise by_logits(3, 4, position), by_weights(3, 4, position);
    differing +=
        gumbel_argmax<float>(ids, logits, by_logits) == first_clock<float>(ids, weights, by_weights)
            ? 0
            : 1;
  }
  EXPECT_LE(differing, 1);
}

TEST(Sampler, DrawsByWeightFollowTheDistribution) {
  const std::vector<std::int32_t> ids{2, 3, 5, 8, 13, 21};
  const std::vector<float> weights{1.0f, 0.5f, 0.0f, 3.0f, 0.01f, 2.0f};
  constexpr std::uint32_t kDraws = 200000;
  KeyedRandom random(11, 12);
  std::vector<double> counts(22, 0);
  for (std::uint32_t position = 0; position < kDraws; ++position) {
    counts[static_cast<std::size_t>(
        random.weighted<float>({Purpose::kDraft, position}, ids, weights))] += 1;
  }
  double statistic = 0, total = 0;
  for (const float weight : weights) total += static_cast<double>(weight);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const double got = counts[static_cast<std::size_t>(ids[i])];
    const double want = static_cast<double>(weights[i]) / total * kDraws;
    if (want == 0) {
      EXPECT_EQ(got, 0);
      continue;
    }
    statistic += (got - want) * (got - want) / want;
  }
  EXPECT_LT(statistic, chi_squared_limit(4));
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
}  // namespace tessera::sampler_test
