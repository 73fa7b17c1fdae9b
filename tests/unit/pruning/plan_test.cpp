// Budgets, groups, and what apply() and prune_sequence() make of a plan.
#include "vision/pruning/plan.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/llava_next_image.h"
#include "tests/support/pruning_chain.h"

namespace tessera::plan_test {
namespace {

TEST(Budget, PublishedCounts) {
  Budget budget;
  budget.ratio = 0.098;
  EXPECT_EQ(budget.kept_of(576, Rounding::kHalfEven), 56);
  EXPECT_EQ(budget.kept_of(2340, Rounding::kHalfEven), 229);
  budget.ratio = 0.5;
  EXPECT_EQ(budget.kept_of(5, Rounding::kHalfEven), 2);
  EXPECT_EQ(budget.kept_of(7, Rounding::kHalfEven), 4);
  EXPECT_EQ(budget.kept_of(7, Rounding::kFloor), 3);
  budget.rounding = Rounding::kCeil;
  EXPECT_EQ(budget.kept_of(5, Rounding::kFloor), 3) << "the caller's rule goes first";
  EXPECT_EQ(keep_tokens(9).kept_of(5, Rounding::kFloor), 5);
}

TEST(Budget, ARatioAboveZeroKeepsOne) {
  Budget budget;
  budget.ratio = 0.001;
  EXPECT_EQ(budget.kept_of(144, Rounding::kHalfEven), 1);
  EXPECT_EQ(budget.kept_of(144, Rounding::kFloor), 1);
  EXPECT_EQ(budget.kept_of(0, Rounding::kHalfEven), 0);
  budget.ratio = 0;
  EXPECT_EQ(budget.kept_of(144, Rounding::kHalfEven), 0);
}

TEST(Budget, SharesOfGroups) {
  const auto shares = [](const Budget& budget, std::vector<std::int64_t> sizes) {
    std::vector<std::int64_t> out(sizes.size());
    kept_by_size(budget, sizes, Rounding::kHalfEven, out);
    return out;
  };
  using Counts = std::vector<std::int64_t>;
  // 10 of 36, 12, 4: 6.92, 2.31, 0.77.
  EXPECT_EQ(shares(keep_shared(10), {36, 12, 4}), (Counts{7, 2, 1}));
  // 10 of 16, 16, 16, 4: 3.08, 3.08, 3.08, 0.77.
  EXPECT_EQ(shares(keep_shared(10), {16, 16, 16, 4}), (Counts{3, 3, 3, 1}));
  // Equal parts go to the first.
  EXPECT_EQ(shares(keep_shared(2), {5, 5, 5, 5}), (Counts{1, 1, 0, 0}));
  EXPECT_EQ(shares(keep_shared(99), {5, 0, 7}), (Counts{5, 0, 7}));
  EXPECT_EQ(shares(keep_shared(0), {5, 7}), (Counts{0, 0}));
  EXPECT_EQ(shares(keep_tokens(6), {5, 0, 7}), (Counts{5, 0, 6})) << "each group's own";
  Budget ratio;
  ratio.ratio = 0.5;
  EXPECT_EQ(shares(ratio, {5, 0, 7}), (Counts{2, 0, 4})) << "rounded group by group";
  ratio.ratio = 0.01;
  EXPECT_EQ(shares(ratio, {5, 9, 9}), (Counts{0, 1, 0})) << "the largest group keeps one";
  EXPECT_EQ(shares(ratio, {60, 9, 9}), (Counts{1, 0, 0}));
  EXPECT_THROW(shares(keep_shared(-1), {5, 7}), Error);
  // Any shares: they sum up, fit, and miss their part by less than one.
  for (std::int64_t tokens = 0; tokens <= 60; ++tokens) {
    const Counts sizes = {1, 17, 0, 4, 23, 9}, kept = shares(keep_shared(tokens), sizes);
    std::int64_t sum = 0;
    for (std::size_t g = 0; g < sizes.size(); ++g) {
      EXPECT_LE(kept[g], sizes[g]);
      EXPECT_LT(std::abs(kept[g] - std::min(tokens, std::int64_t{54}) * sizes[g] / 54.0), 1);
      sum += kept[g];
    }
    EXPECT_EQ(sum, std::min(tokens, std::int64_t{54}));
  }
}

TEST(Budget, RefusesNonsense) {
  Budget budget;
  for (const double ratio : {-0.1, 1.1, std::nan("")}) {
    budget.ratio = ratio;
    EXPECT_THROW(budget.kept_of(5, Rounding::kFloor), Error) << ratio;
  }
  EXPECT_THROW(keep_tokens(-1).kept_of(5, Rounding::kFloor), Error);
}

TEST(Budget, GroupsByTileFrameOrAll) {
  const VisualBlock block = llava_next_image(640, 480, Padding::kFlagged);
  PruneScratch scratch;
  Budget budget;
  const auto tiles = group_candidates(block, budget, Scope::kPerTile, scratch);
  ASSERT_EQ(tiles.groups(), 5);
  EXPECT_EQ(tiles.group(0).size(), 576u);
  for (std::int64_t g = 1; g < 5; ++g) EXPECT_EQ(tiles.group(g).size(), 18u * 24u);
  for (std::int64_t g = 0; g < 5; ++g) {
    TokenIndex last = -1;
    for (const TokenIndex i : tiles.group(g)) {
      EXPECT_EQ(block[i].tile, g);
      EXPECT_FALSE(block[i].padded);
      EXPECT_GT(i, last);
      last = i;
    }
  }
  EXPECT_EQ(group_candidates(block, budget, Scope::kGlobal, scratch).tokens.size(), 2304u);
  budget.outcome[static_cast<std::size_t>(TokenKind::kNewline)] = TokenOutcome::kCompete;
  EXPECT_EQ(group_candidates(block, budget, Scope::kGlobal, scratch).tokens.size(), 2340u);
  const VisualBlock video = qwen_block(3, 2, 2, QwenStage::kMerged);
  const auto frames = group_candidates(video, Budget{}, Scope::kPerFrame, scratch);
  ASSERT_EQ(frames.groups(), 3);
  EXPECT_EQ(frames.group(2).front(), 8);
  EXPECT_EQ(group_candidates(VisualBlock{}, Budget{}, Scope::kPerTile, scratch).groups(), 0);
}

TEST(Apply, GathersInOrderAndMovesTheDescriptor) {
  const VisualBlock block = grid_block(2, 3, 10);
  const std::vector<float> features = {0, 1, 2, 3, 4, 5};
  PrunePlan plan;
  plan.kept = {1, 2, 5};
  EXPECT_EQ(apply(plan, block, matrix(features, 1)).features, (std::vector<float>{1, 2, 5}));
  plan.order = {2, 0, 1};
  const PrunedBlock pruned = apply(plan, block, matrix(features, 1));
  EXPECT_EQ(pruned.features, (std::vector<float>{5, 1, 2}));
  EXPECT_EQ(pruned.block[0].position[0], 15);
  EXPECT_EQ(pruned.block[0].row, 1);
  EXPECT_EQ(pruned.statistics.total, 6);
  EXPECT_EQ(pruned.statistics.kept, 3);
  const PrunePlan back = raster_plan(pruned.block);
  EXPECT_EQ(apply(back, pruned.block, matrix(pruned.features, 1)).features,
            (std::vector<float>{1, 2, 5}));
}

TEST(Apply, SizesAdd) {
  VisualBlock block = grid_block(1, 4);
  block.tokens[3].size = 5;
  const std::vector<float> features = {1, 2, 3, 4};
  PrunePlan plan;
  plan.kept = {0, 2};
  plan.merges = {{3, 2}, {1, 2}};
  plan.rule = MergeRule::kSizeWeightedMean;
  const PrunedBlock pruned = apply(plan, block, matrix(features, 1));
  EXPECT_EQ(pruned.block[0].size, 1);
  EXPECT_EQ(pruned.block[1].size, 7);
  EXPECT_FLOAT_EQ(pruned.features[1], (3 + 2 + 5 * 4) / 7.0f);
  EXPECT_EQ(pruned.statistics.merged, 2);
}

TEST(ApplyDeathTest, RefusesPlansThatDoNotFit) {
  const VisualBlock block = grid_block(1, 4);
  const std::vector<float> features = {1, 2, 3, 4};
  const auto run = [&](std::vector<TokenIndex> kept, std::vector<TokenIndex> order = {},
                       std::vector<Merge> merges = {}) {
    PrunePlan plan;
    plan.kept = std::move(kept);
    plan.order = std::move(order);
    plan.merges = std::move(merges);
    plan.rule = MergeRule::kMean;
    apply(plan, block, matrix(features, 1));
  };
  EXPECT_DEATH(run({1, 1}), "ascend");
  EXPECT_DEATH(run({2, 1}), "ascend");
  EXPECT_DEATH(run({4}), "ascend");
  EXPECT_DEATH(run({0, 1}, {0, 0}), "once");
  EXPECT_DEATH(run({0, 1}, {0}), "every");
  EXPECT_DEATH(run({0, 1}, {}, {{2, 3}}), "destination");
  EXPECT_DEATH(run({0, 1}, {}, {{1, 0}}), "source");
  EXPECT_DEATH(run({0, 1}, {}, {{2, 0}, {2, 1}}), "once");
}

// A prompt of text, two images and text between and after.
TEST(PruneSequence, RenumberedAndOriginalIds) {
  std::vector<std::int32_t> ids(12);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(i);
  PrunePlan first, second;
  first.kept = {1, 3};
  second.kept = {0};
  const std::vector<PlacedPlan> placed = {{&first, 2, 4}, {&second, 8, 2}};
  const auto original = prune_sequence(ids, 1, placed, PositionPolicy::kOriginal);
  EXPECT_EQ(original.rows, (std::vector<std::int64_t>{0, 1, 3, 5, 6, 7, 8, 10, 11}));
  EXPECT_EQ(original.positions, (std::vector<std::int32_t>{0, 1, 3, 5, 6, 7, 8, 10, 11}));
  EXPECT_EQ(original.delta, 3) << "the next token is 12 = 9 + 3";
  const auto renumbered = prune_sequence(ids, 1, placed, PositionPolicy::kRenumber);
  EXPECT_EQ(renumbered.rows, original.rows);
  EXPECT_EQ(renumbered.positions, (std::vector<std::int32_t>{0, 1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(renumbered.delta, 0);
}

// Text 0 1 | 2 x 3 merged image at 2 | text from max + 1 = 5 on.
TEST(PruneSequence, ThreeRowsOfIdsAndTheirDelta) {
  const VisualBlock block = qwen_block(1, 2, 3, QwenStage::kMerged, 2);
  std::vector<std::int32_t> ids;
  for (std::size_t row = 0; row < 3; ++row) {
    ids.insert(ids.end(), {0, 1});
    for (const VisualToken& token : block.tokens) ids.push_back(token.position[row]);
    ids.insert(ids.end(), {5, 6});
  }
  PrunePlan whole = whole_plan(block, Budget{}, PositionPolicy::kOriginal);
  const auto same =
      prune_sequence(ids, 3, std::vector<PlacedPlan>{{&whole, 2, 6}}, PositionPolicy::kOriginal);
  EXPECT_EQ(same.positions, ids);
  EXPECT_EQ(same.delta, 7 - 10);
  PrunePlan plan;
  plan.kept = {2, 4};
  const auto pruned =
      prune_sequence(ids, 3, std::vector<PlacedPlan>{{&plan, 2, 6}}, PositionPolicy::kOriginal);
  EXPECT_EQ(pruned.positions, (std::vector<std::int32_t>{0, 1, 2, 2, 5, 6,  //
                                                         0, 1, 2, 3, 5, 6,  //
                                                         0, 1, 4, 3, 5, 6}));
  EXPECT_EQ(pruned.delta, 7 - 6) << "next id = 6 + delta = 7, as without pruning";
}

TEST(PruneSequence, RowsAndPositionsFollowAnOrder) {
  const std::vector<std::int32_t> ids = {0, 1, 2, 3, 4};
  PrunePlan plan;
  plan.kept = {0, 2};
  plan.order = {1, 0};
  const auto out =
      prune_sequence(ids, 1, std::vector<PlacedPlan>{{&plan, 1, 3}}, PositionPolicy::kOriginal);
  EXPECT_EQ(out.rows, (std::vector<std::int64_t>{0, 3, 1, 4}));
  EXPECT_EQ(out.positions, (std::vector<std::int32_t>{0, 3, 1, 4}));
}

}  // namespace
}  // namespace tessera::plan_test
