// VisPruner, VisionZip and the correlation-guided method against golden vectors and plain loops.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/pruning_chain.h"
#include "vision/pruning/correlation.h"
#include "vision/pruning/visionzip.h"
#include "vision/pruning/vispruner.h"

namespace tessera::encoder_methods_test {
namespace {

constexpr int kLayer = 22;

std::vector<TokenIndex> rounds(const std::vector<float>& features, std::vector<TokenIndex> list,
                               std::int64_t target, std::int64_t per_round) {
  PruneScratch scratch;
  const auto all = count_up(static_cast<std::int64_t>(features.size()) / 2);
  const auto unit = normalised_rows(matrix(features, 2), all, scratch);
  const auto span = drop_duplicates(unit, list, target, per_round, scratch);
  return {span.begin(), span.end()};
}

TEST(VisPruner, GoldenRounds) {
  const auto features = at_degrees({0, 5, 30, 33, 90, 95, 180, 181});
  EXPECT_EQ(rounds(features, count_up(8), 4, 2), (std::vector<TokenIndex>{0, 4, 3, 7}));
  // Injected fault: all four at once is another answer, so the golden tells rounds apart.
  EXPECT_NE(rounds(features, count_up(8), 4, 4), (std::vector<TokenIndex>{0, 4, 3, 7}));
}

TEST(VisPruner, RoundsEndWhereTheyShould) {
  for (const std::int64_t n : {1, 2, 3, 7, 16, 25}) {
    for (std::int64_t target = 0; target <= n; ++target) {
      for (const std::int64_t q : {1, 3, 8}) {
        const auto features =
            noise_list(static_cast<std::uint64_t>(n), static_cast<std::size_t>(2 * n));
        auto kept = rounds(features, count_up(n), target, q);
        EXPECT_EQ(static_cast<std::int64_t>(kept.size()), target);
        std::sort(kept.begin(), kept.end());
        EXPECT_EQ(std::unique(kept.begin(), kept.end()), kept.end());
      }
    }
  }
}

SignalStore vispruner_signals(const std::vector<float>& attention,
                              const std::vector<float>& features) {
  SignalStore store;
  store.add(SignalKind::kClsRow, kLayer, static_cast<std::int64_t>(attention.size()), attention);
  store.add(SignalKind::kEncoderHidden, kLayer, 2, features);
  return store;
}

TEST(VisPruner, ImportantOnesAndDifferentOnes) {
  const VisualBlock block = grid_block(2, 5);
  // Tokens 8 and 9 are looked at most; the others in order 0 ... 7.
  const std::vector<float> attention = {.17f, .16f, .15f, .14f, .13f, .12f, .11f, .10f, .3f, .2f};
  const auto features = at_degrees({0, 5, 30, 33, 90, 95, 180, 181, 300, 302});
  const SignalStore store = vispruner_signals(attention, features);
  const PrunePlan plan = select_once(VisPruner({.important_ratio = 0.34, .per_round = 2}), block,
                                     store, keep_tokens(6));
  EXPECT_EQ(plan.kept, (std::vector<TokenIndex>{0, 3, 4, 7, 8, 9}));
  EXPECT_EQ(plan.source, RowSource::kCls);
  // r = 1 is plain top-k by attention, r = 0 asks attention for the order only.
  EXPECT_EQ(select_once(VisPruner({.important_ratio = 1}), block, store, keep_tokens(3)).kept,
            (std::vector<TokenIndex>{0, 8, 9}));
}

// --- VisionZip -----------------------------------------------------------------------------------

TEST(VisionZip, PublishedStrides) {
  struct Golden {
    std::int64_t rest, contexts, stride, last;
  };
  for (const Golden g : {Golden{523, 10, 52, 468}, {469, 20, 23, 437}, {415, 30, 13, 377}}) {
    EXPECT_EQ(context_stride(g.rest, g.contexts), g.stride);
    EXPECT_EQ((g.contexts - 1) * g.stride, g.last);
  }
  EXPECT_EQ(context_stride(3, 5), 1);
  EXPECT_EQ(context_stride(3, 0), 1);
}

std::vector<float> falling(std::size_t count) {
  std::vector<float> out;
  for (std::size_t i = 0; i < count; ++i) out.push_back(1.0f / static_cast<float>(i + 2));
  return out;
}

// 577 encoder tokens, the CLS token among the dominant ones, as published.
TEST(VisionZip, GoldenCentresOfTheThreeBudgets) {
  const VisualBlock block = tiles_block(1, 24, 24, /*cls=*/true);
  const std::vector<float> attention = falling(577);
  for (const auto& [budget, dominant, contexts, stride] :
       {std::array<std::int64_t, 4>{64, 54, 10, 52}, {128, 108, 20, 23}, {192, 162, 30, 13}}) {
    SignalStore store;
    store.add(SignalKind::kClsRow, kLayer, 577, attention);
    store.add(SignalKind::kEncoderKeys, kLayer, 4, noise_list(3, 577 * 4), 2);
    Budget with_cls = keep_tokens(budget);
    with_cls.outcome[static_cast<std::size_t>(TokenKind::kCls)] = TokenOutcome::kCompete;
    const PrunePlan plan = select_once(VisionZip({}), block, store, with_cls);
    std::vector<TokenIndex> want = count_up(dominant);  // CLS and the patches looked at most
    for (std::int64_t c = 0; c < contexts; ++c) want.push_back(dominant + c * stride);
    EXPECT_EQ(plan.kept, want);
    EXPECT_EQ(plan.merges.size(), static_cast<std::size_t>(577 - budget));
    EXPECT_EQ(plan.rule, MergeRule::kCentrePlusMean);
  }
}

struct Zip {
  VisualBlock block = grid_block(3, 4);
  std::vector<float> features = noise_list(5, 12 * 3);
  std::vector<float> attention = falling(12);

  PrunePlan plan(const std::vector<float>& keys, const VisionZip::Settings& settings,
                 std::int64_t keep) const {
    SignalStore store;
    store.add(SignalKind::kClsRow, kLayer, 12, attention);
    store.add(SignalKind::kEncoderKeys, kLayer, 2, keys);
    return select_once(VisionZip(settings), block, store, keep_tokens(keep));
  }
};

TEST(VisionZip, EqualKeysAllGoToTheFirstCentre) {
  const Zip zip;
  const PrunePlan plan = zip.plan(std::vector<float>(24, 1.0f), {.contexts = 3}, 6);
  // Dominant 0 1 2; rest 3 ... 11, stride 3: centres 3, 6, 9.
  EXPECT_EQ(plan.kept, (std::vector<TokenIndex>{0, 1, 2, 3, 6, 9}));
  for (const Merge& merge : plan.merges) EXPECT_EQ(merge.destination, 3);
  const PrunedBlock pruned = apply(plan, zip.block, matrix(zip.features, 3));
  for (const std::size_t slot : {4u, 5u}) {
    const TokenIndex own = plan.kept[slot];
    for (std::size_t c = 0; c < 3; ++c) {
      EXPECT_EQ(pruned.features[slot * 3 + c], zip.features[static_cast<std::size_t>(own) * 3 + c])
          << "a centre without members is itself";
    }
  }
}

TEST(VisionZip, OneContextIsTheCentrePlusTheMeanOfTheRest) {
  const Zip zip;
  for (const bool true_mean : {false, true}) {
    const PrunePlan plan = zip.plan(noise_list(6, 24), {.contexts = 1, .true_mean = true_mean}, 5);
    EXPECT_EQ(plan.kept, (std::vector<TokenIndex>{0, 1, 2, 3, 4}));
    const PrunedBlock pruned = apply(plan, zip.block, matrix(zip.features, 3));
    for (std::size_t c = 0; c < 3; ++c) {
      double sum = 0;
      for (std::size_t i = 5; i < 12; ++i) sum += zip.features[i * 3 + c];
      const double centre = zip.features[4 * 3 + c];
      EXPECT_NEAR(pruned.features[4 * 3 + c], true_mean ? (centre + sum) / 8 : centre + sum / 7,
                  1e-6);
    }
  }
}

// What doubling means: equal features come out twice as long under the published rule.
TEST(VisionZip, ThePublishedRuleDoublesTheLength) {
  Zip zip;
  zip.features.assign(36, 0.5f);
  const auto at = [&](bool true_mean) {
    const PrunePlan plan = zip.plan(noise_list(6, 24), {.contexts = 1, .true_mean = true_mean}, 5);
    return apply(plan, zip.block, matrix(zip.features, 3)).features[4 * 3];
  };
  EXPECT_EQ(at(false), 1.0f);
  EXPECT_EQ(at(true), 0.5f);
}

TEST(VisionZip, MembersGoToTheCentreOfTheMostSimilarKey) {
  const Zip zip;
  const auto keys = at_degrees({0, 0, 0, 10, 12, 100, 90, 200, 80, 210, 20, 95});
  const PrunePlan plan = zip.plan(keys, {.contexts = 3}, 6);
  EXPECT_EQ(plan.kept, (std::vector<TokenIndex>{0, 1, 2, 3, 6, 9}));
  std::vector<TokenIndex> to(12, -1);
  for (const Merge& merge : plan.merges)
    to[static_cast<std::size_t>(merge.source)] = merge.destination;
  EXPECT_EQ(to, (std::vector<TokenIndex>{-1, -1, -1, -1, 3, 6, -1, 9, 6, -1, 3, 6}));
}

TEST(VisionZip, DominantOnesFirstOnRequest) {
  Zip zip;
  std::reverse(zip.attention.begin(), zip.attention.end());
  const PrunePlan plan = zip.plan(noise_list(6, 24), {.contexts = 3, .dominant_first = true}, 6);
  // Dominant 9 10 11; rest 0 ... 8: centres 0, 3, 6.
  EXPECT_EQ(plan.kept, (std::vector<TokenIndex>{0, 3, 6, 9, 10, 11}));
  EXPECT_EQ(plan.order, (std::vector<TokenIndex>{3, 4, 5, 0, 1, 2}));
}

// --- correlation-guided --------------------------------------------------------------------------

TEST(Correlation, TilesOfCopiesKeepFewAndTilesOfDifferencesKeepAll) {
  const VisualBlock block = tiles_block(2, 4, 5);
  std::vector<double> angles;
  for (int i = 0; i < 20; ++i) angles.push_back(18.0 * i);  // neighbours at 18 and 36 degrees
  for (int i = 0; i < 20; ++i) angles.push_back(i < 15 ? 0 : 60 + 50 * (i - 15));
  SignalStore store;
  store.add(SignalKind::kClsRow, kLayer, 40, noise_list(1, 40));
  store.add(SignalKind::kClsRow, 0, 40, noise_list(2, 40));
  store.add(SignalKind::kEncoderKeys, kLayer, 2, at_degrees(angles));
  Budget budget;
  budget.adaptive = true;
  const auto kept_in = [](const PrunePlan& plan, TokenIndex from, TokenIndex to) {
    return std::count_if(plan.kept.begin(), plan.kept.end(),
                         [&](TokenIndex i) { return i >= from && i < to; });
  };
  // cos 18 degrees = 0.951, cos 36 = 0.809: two others are close; that is 10 % of 20, not more.
  const PrunePlan plan = select_once(Correlation({}), block, store, budget);
  EXPECT_EQ(kept_in(plan, 0, 20), 20);
  EXPECT_EQ(kept_in(plan, 20, 40), 5) << "15 copies are redundant";
  const PrunePlan wider = select_once(Correlation({.alike = 0.8}), block, store, budget);
  EXPECT_EQ(kept_in(wider, 0, 20), 1) << "everything is redundant; the least number stays";
  budget.least = 7;
  budget.most = 8;
  const PrunePlan bounded = select_once(Correlation({}), block, store, budget);
  EXPECT_EQ(kept_in(bounded, 0, 20), 8);
  EXPECT_EQ(kept_in(bounded, 20, 40), 7);
}

TEST(Correlation, HalfByTheLateRowTheRestByTheEarlyOne) {
  const VisualBlock block = grid_block(1, 6);
  SignalStore store;
  store.add(SignalKind::kClsRow, kLayer, 6, {9, 8, 7, 3, 2, 1});
  store.add(SignalKind::kClsRow, 0, 6, {9, 1, 2, 3, 4, 5});
  store.add(SignalKind::kEncoderKeys, kLayer, 2, noise_list(3, 12));
  EXPECT_EQ(select_once(Correlation({}), block, store, keep_tokens(4)).kept,
            (std::vector<TokenIndex>{0, 1, 4, 5}));
  EXPECT_EQ(select_once(Correlation({}), block, store, keep_tokens(3)).kept,
            (std::vector<TokenIndex>{0, 1, 5}));
}

}  // namespace
}  // namespace tessera::encoder_methods_test
