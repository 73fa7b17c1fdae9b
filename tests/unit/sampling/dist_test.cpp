// The distribution against a second, plain implementation in long-hand: every small case enumerated. The
// second implementation can be given one wrong stage at a time, and each must be noticed.
#include "engine/sampling/dist.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "engine/core/philox.h"

namespace tessera::dist_test {
namespace {

enum class Fault {
  kNone,
  kTemperatureAfterCuts,
  kTopKOnCondOnly,
  kStrictTopK,
  kGuidanceOnProbabilities,
  kGuidanceAfterTemperatureTwice,
  kMaskLast,
  kTopPOneTooFew,
  kTopPOneTooMany,
  kMinPAbsolute,
  kTypicalByLikelihood,
  kTopPBeforeTopK,
  kNoRenormalisation,
};

struct Row {
  std::vector<double> cond, uncond;
  std::vector<std::uint8_t> allowed;
};

constexpr double kGone = -std::numeric_limits<double>::infinity();

std::vector<double> softmax(const std::vector<double>& logits) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  std::vector<double> out;
  double total = 0;
  for (const double l : logits) {
    out.push_back(std::exp(l - largest));
    total += out.back();
  }
  for (double& p : out) p /= total;
  return out;
}

std::vector<std::size_t> by_descending(const std::vector<double>& values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return values[a] > values[b]; });
  return order;
}

std::vector<double> cut_top_k(const std::vector<double>& logits, std::size_t k, Fault fault,
                              const std::vector<double>& cond) {
  const std::vector<double>& verified = fault == Fault::kTopKOnCondOnly ? cond : logits;
  std::vector<double> out = logits;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    std::size_t above = 0;
    for (std::size_t j = 0; j < logits.size(); ++j) {
      if (verified[j] > verified[i]) ++above;
      if (fault == Fault::kStrictTopK && verified[j] == verified[i] && j < i) ++above;
    }
    if (above >= k) out[i] = kGone;
  }
  return out;
}

std::vector<double> cut_top_p(const std::vector<double>& logits, double top_p, Fault fault,
                              const std::vector<double>& before_cuts) {
  const std::vector<double> p = softmax(fault == Fault::kNoRenormalisation ? before_cuts : logits);
  std::vector<double> out = logits;
  double mass = 0;
  std::size_t kept = 0;
  for (const std::size_t i : by_descending(p)) {
    bool keep = mass < top_p;
    if (fault == Fault::kTopPOneTooFew) keep = mass + p[i] <= top_p || kept == 0;
    if (fault == Fault::kTopPOneTooMany) keep = mass - (kept > 0 ? 0.25 : 0) < top_p;
    mass += p[i];
    if (keep && p[i] > 0) ++kept;
    if (!keep) out[i] = kGone;
  }
  return out;
}

std::vector<double> cut_min_p(const std::vector<double>& logits, double min_p, Fault fault) {
  const std::vector<double> p = softmax(logits);
  const double largest = *std::max_element(p.begin(), p.end());
  std::vector<double> out = logits;
  for (std::size_t i = 0; i < p.size(); ++i) {
    const double edge = fault == Fault::kMinPAbsolute ? min_p : min_p * largest;
    if (p[i] < edge && p[i] < largest) out[i] = kGone;
  }
  return out;
}

std::vector<double> cut_typical(const std::vector<double>& logits, double mass, Fault fault) {
  const std::vector<double> p = softmax(logits);
  double entropy = 0;
  for (const double x : p) entropy -= x > 0 ? x * std::log(x) : 0;
  std::vector<double> closeness;
  for (const double x : p) {
    const double surprise = x > 0 ? -std::log(x) : 1e30;
    closeness.push_back(fault == Fault::kTypicalByLikelihood ? -surprise
                                                             : -std::fabs(surprise - entropy));
  }
  std::vector<double> out(p.size(), kGone);
  double total = 0, edge = 0;
  for (const std::size_t i : by_descending(closeness)) {
    if (total >= mass) break;
    total += p[i];
    edge = closeness[i];
  }
  for (std::size_t i = 0; i < p.size(); ++i) {
    if (closeness[i] >= edge - 1e-13 && p[i] > 0) out[i] = logits[i];
  }
  return out;
}

std::vector<double> guided(const Row& row, const DistributionSettings& s, Fault fault) {
  std::vector<double> logits(row.cond.size());
  const std::vector<double> pc = softmax(row.cond), pu = softmax(row.uncond);
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (fault == Fault::kGuidanceOnProbabilities) {
      logits[i] = std::log(std::max(pu[i] + s.guidance * (pc[i] - pu[i]), 1e-9));
    } else {
      logits[i] = row.uncond[i] + s.guidance * (row.cond[i] - row.uncond[i]);
    }
    if (fault == Fault::kGuidanceAfterTemperatureTwice) logits[i] /= s.temperature;
  }
  return logits;
}

void apply_mask(std::vector<double>& logits, const Row& row) {
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (!row.allowed.empty() && row.allowed[i] == 0) logits[i] = kGone;
  }
}

std::vector<double> plain_dist(const Row& row, const DistributionSettings& s, Fault fault = Fault::kNone) {
  std::vector<double> logits = guided(row, s, fault);
  if (fault != Fault::kMaskLast) apply_mask(logits, row);
  const auto heat = [&] {
    for (double& l : logits) l /= s.temperature;
  };
  if (fault != Fault::kTemperatureAfterCuts) heat();
  const std::vector<double> before_cuts = logits;
  const auto top_k = [&] {
    if (s.top_k > 0) {
      logits = cut_top_k(logits, static_cast<std::size_t>(s.top_k), fault, row.cond);
    }
  };
  if (fault != Fault::kTopPBeforeTopK) top_k();
  if (s.top_p < 1) logits = cut_top_p(logits, s.top_p, fault, before_cuts);
  if (fault == Fault::kTopPBeforeTopK) top_k();
  if (s.min_p > 0) logits = cut_min_p(logits, s.min_p, fault);
  if (s.typical < 1) logits = cut_typical(logits, s.typical, fault);
  if (fault == Fault::kTemperatureAfterCuts) heat();
  if (fault == Fault::kMaskLast) {
    std::vector<double> masked = logits;
    apply_mask(masked, row);
    if (std::any_of(masked.begin(), masked.end(), [](double l) { return l != kGone; })) {
      logits = masked;
    }
  }
  return softmax(logits);
}

std::vector<DistributionSettings> all_settings() {
  std::vector<DistributionSettings> out;
  for (const double guidance : {1.0, 2.0, 5.0}) {
    for (const double temperature : {0.5, 1.0, 1.7}) {
      for (const int top_k : {0, 1, 2, 3}) {
        for (const double top_p : {1.0, 0.55, 0.83}) {
          for (const double min_p : {0.0, 0.3}) {
            for (const double typical : {1.0, 0.6}) {
              out.push_back({guidance, temperature, top_k, top_p, min_p, typical});
            }
          }
        }
      }
    }
  }
  return out;
}

// All rows of three ids with logits of a few levels (ties included), with and without a mask; and
// seeded rows of four and five ids.
std::vector<Row> all_rows() {
  const std::vector<double> levels = {-1.25, 0.0, 0.5, 2.0};
  std::vector<Row> rows;
  for (const double a : levels) {
    for (const double b : levels) {
      for (const double c : levels) {
        Row row{{a, b, c}, {c * 0.5, a * 0.25, b}, {}};
        rows.push_back(row);
        row.allowed = {1, 0, 1};
        rows.push_back(row);
      }
    }
  }
  for (std::uint32_t seed = 0; seed < 120; ++seed) {
    Row row;
    const auto key = philox_key(seed, 9);
    const std::uint32_t size = 4 + seed % 2;
    for (std::uint32_t i = 0; i < size; ++i) {
      const PhiloxBlock bits = philox4x32({i, 0, 0, 0}, key);
      row.cond.push_back(3.0 * static_cast<double>(uniform_open(bits[0])));
      row.uncond.push_back(2.0 * static_cast<double>(uniform_open(bits[1])));
      if (seed % 3 == 0) row.allowed.push_back(i == seed % size ? 0 : 1);
    }
    rows.push_back(row);
  }
  return rows;
}

template <typename Real>
double worst_difference(Fault fault) {
  double worst = 0;
  const std::vector<DistributionSettings> settings = all_settings();
  for (const Row& row : all_rows()) {
    const std::vector<Real> cond(row.cond.begin(), row.cond.end());
    const std::vector<Real> uncond(row.uncond.begin(), row.uncond.end());
    for (const DistributionSettings& s : settings) {
      DistributionPipeline<Real> dist(s, static_cast<std::int64_t>(cond.size()));
      dist.process(cond, uncond, row.allowed);
      const std::span<const Real> got = dist.probabilities();
      const std::vector<double> want = plain_dist(row, s, fault);
      double distance = 0;
      for (std::size_t i = 0; i < want.size(); ++i) {
        distance = std::max(distance, std::fabs(static_cast<double>(got[i]) - want[i]));
      }
      worst = std::max(worst, distance);
    }
  }
  return worst;
}

TEST(Distribution, EqualsThePlainFormInDouble) { EXPECT_LT(worst_difference<double>(Fault::kNone), 1e-12); }

// In float the cuts can fall differently where two masses are equal to the last bit; without cuts
// of mass the distribution must agree everywhere.
TEST(Distribution, EqualsThePlainFormInFloatWithoutMassCuts) {
  for (const Row& row : all_rows()) {
    const std::vector<float> cond(row.cond.begin(), row.cond.end());
    const std::vector<float> uncond(row.uncond.begin(), row.uncond.end());
    for (const double guidance : {1.0, 5.0}) {
      for (const int top_k : {0, 2}) {
        const DistributionSettings s{guidance, 0.5, top_k, 1.0, 0.0, 1.0};
        Row rounded = row;
        rounded.cond.assign(cond.begin(), cond.end());
        rounded.uncond.assign(uncond.begin(), uncond.end());
        DistributionPipeline<float> dist(s, static_cast<std::int64_t>(cond.size()));
        dist.process(cond, uncond, row.allowed);
        const std::vector<double> want = plain_dist(rounded, s);
        const auto got = dist.probabilities();
        for (std::size_t i = 0; i < want.size(); ++i) {
          // Logits up to 25 after guidance and temperature: their rounding, 25 * 2^-23, is the
          // error.
          EXPECT_NEAR(static_cast<double>(got[i]), want[i], 25 * 0x1p-22);
        }
      }
    }
  }
}

class DistributionFault : public ::testing::TestWithParam<Fault> {};

TEST_P(DistributionFault, IsNoticed) { EXPECT_GT(worst_difference<double>(GetParam()), 1e-3); }

INSTANTIATE_TEST_SUITE_P(Injected, DistributionFault,
                         ::testing::Values(Fault::kTemperatureAfterCuts, Fault::kTopKOnCondOnly,
                                           Fault::kStrictTopK, Fault::kGuidanceOnProbabilities,
                                           Fault::kGuidanceAfterTemperatureTwice, Fault::kMaskLast,
                                           Fault::kTopPOneTooFew, Fault::kTopPOneTooMany,
                                           Fault::kMinPAbsolute, Fault::kTypicalByLikelihood,
                                           Fault::kTopPBeforeTopK, Fault::kNoRenormalisation));

TEST(Distribution, TiesAtTheTopKThresholdStay) {
  DistributionPipeline<float> dist({.top_k = 2}, 6);
  const std::vector<float> logits = {1, 3, 2, 2, 2, 0};
  dist.process(logits, {});
  EXPECT_EQ(std::vector<std::int32_t>(dist.support().begin(), dist.support().end()),
            (std::vector<std::int32_t>{1, 2, 3, 4}));
}

TEST(Distribution, TopPKeepsAtLeastOneIdAndReachesTheMass) {
  const std::vector<float> logits = {std::log(0.5f), std::log(0.3f), std::log(0.2f)};
  for (const auto& [top_p, kept] :
       {std::pair{1e-9, 1}, {0.49, 1}, {0.51, 2}, {0.79, 2}, {0.81, 3}}) {
    DistributionPipeline<float> dist({.top_p = top_p}, 3);
    dist.process(logits, {});
    EXPECT_EQ(dist.support().size(), static_cast<std::size_t>(kept)) << top_p;
  }
}

// Masses are whole numbers: equal ids reach a share exactly, and what rounding leaves over does not
// let another one in.
TEST(Distribution, TopPAtTheVeryEdge) {
  const auto kept = [](std::size_t equal, double top_p) {
    DistributionPipeline<float> dist({.top_p = top_p}, static_cast<std::int64_t>(equal));
    dist.process(std::vector<float>(equal, 3.0f), {});
    for (std::size_t i = 0; i < dist.support().size(); ++i) {
      EXPECT_EQ(dist.support()[i], static_cast<std::int32_t>(i));
    }
    return dist.support().size();
  };
  for (std::size_t equal = 2; equal <= 1024; equal *= 2) {
    for (std::size_t n = 1; n < equal; n += 1 + equal / 16) {
      const double share = static_cast<double>(n) / static_cast<double>(equal);
      EXPECT_EQ(kept(equal, share), n) << equal;
      EXPECT_EQ(kept(equal, share - 0x1p-41), n) << equal;  // less than a unit
      EXPECT_EQ(kept(equal, share + 0x1p-39), n + 1) << equal;
    }
  }
}

TEST(Distribution, NoTemperatureAboveZeroBreaksARow) {
  const std::vector<float> logits = {1, 4, -0.0f, 4, 0};
  for (const double temperature : {5e-324, 1e-60, 1e-38, 1e-10, 1e10, 1e38}) {
    DistributionPipeline<float> dist({.temperature = temperature}, 5);
    dist.process(logits, {});
    const auto probs = dist.probabilities();
    double total = 0;
    for (const float p : probs) total += static_cast<double>(p);
    EXPECT_NEAR(total, 1, 1e-6) << temperature;
    EXPECT_EQ(probs[1], probs[3]) << temperature;
    EXPECT_EQ(probs[2], probs[4]) << temperature;
    EXPECT_GE(probs[1], probs[0]) << temperature;
  }
}

TEST(Distribution, GreedyTakesTheLargestGuidedLogitAndTheLowestIdOnATie) {
  DistributionPipeline<float> dist({.guidance = 5, .temperature = 0}, 4);
  const std::vector<float> cond = {1, 2, 3, 2}, uncond = {1, 1, 4, 1};
  dist.process(cond, uncond);
  ASSERT_EQ(dist.support().size(), 1u);
  EXPECT_EQ(dist.support()[0], 1);
  EXPECT_EQ(dist.probabilities()[1], 1.0f);
}

// What one row leaves after must not show in the next: one pipeline for all rows against a new one
// for each.
TEST(Distribution, RowsLeaveNothingAfter) {
  constexpr std::size_t kCodes = 19;
  const DistributionSettings forms[] = {
      {}, {.temperature = 0}, {.top_k = 4}, {.top_p = 0.6}, {.min_p = 0.3}, {.typical = 0.5}};
  for (const DistributionSettings& settings : forms) {
    const VocabularyGrammar grammar{.codes = kCodes, .rows = 3, .columns = 2, .row_end = true};
    DistributionPipeline<float> used(settings, grammar);
    for (std::uint32_t step = 0; step < 60; ++step) {
      std::vector<float> logits(kCodes);
      std::vector<std::uint8_t> allowed(kCodes, 1);
      for (std::uint32_t id = 0; id < kCodes; ++id) {
        const PhiloxBlock bits = philox4x32({id, step, 0, 0}, {1, 2});
        logits[id] = 4 * uniform_open(bits[0]);
        allowed[id] = bits[1] % 3 == 0 ? 0 : 1;
      }
      allowed[step % kCodes] = 1;
      DistributionPipeline<float> fresh(settings, grammar);
      for (DistributionPipeline<float>* dist : {&used, &fresh}) {
        if (step % 4 == 3) {
          dist->process(logits, {}, allowed);
        } else {
          dist->process_at(step % grammar.length(), logits, {});
        }
      }
      const auto same = [](auto a, auto b) {
        return std::equal(a.begin(), a.end(), b.begin(), b.end());
      };
      ASSERT_TRUE(same(used.support(), fresh.support())) << step;
      ASSERT_TRUE(same(used.support_logits(), fresh.support_logits())) << step;
      ASSERT_TRUE(same(used.probabilities(), fresh.probabilities())) << step;
    }
  }
}

TEST(Distribution, GuidanceOneNeverReadsTheOtherBranch) {
  DistributionPipeline<float> dist({}, 2);
  const std::vector<float> cond = {1, 2};
  dist.process(cond, {});
  EXPECT_NEAR(dist.probabilities()[1], 1.0 / (1.0 + std::exp(-1.0)), 1e-6);
}

TEST(Distribution, UnsoundLogitsAreFound) {
  std::vector<float> logits(100, 0.5f);
  logits[3] = -1e30f;
  EXPECT_FALSE(first_unsound(logits));
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
        -std::numeric_limits<float>::infinity(), 3e38f, -2e30f}) {
    logits[37] = bad;
    EXPECT_EQ(first_unsound(logits), 37);
  }
}

}  // namespace
}  // namespace tessera::dist_test
