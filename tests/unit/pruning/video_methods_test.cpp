// Pruning across frames: what is the same in frame after frame is kept once, budgets of a whole
// video and of each frame, and a draft's tokens chosen by the verifying model's attention.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>

#include "tests/support/pruning_chain.h"
#include "vision/pruning/divprune.h"
#include "vision/pruning/registry.h"
#include "vision/pruning/temporal.h"
#include "vision/pruning/verifier.h"

namespace tessera::video_methods_test {
namespace {

// `frames` frames of rows x columns tokens, plain ids.
VisualBlock video_block(std::int32_t frames, std::int32_t rows, std::int32_t columns) {
  VisualBlock block = tiles_block(frames, rows, columns);
  for (VisualToken& token : block.tokens) token.frame = token.tile;
  return block;
}

PrunePlan plan_for(const Pruner& pruner, const VisualBlock& block, const Budget& budget,
                   SignalKind kind, std::int64_t columns, const std::vector<float>& values) {
  SignalStore store;
  store.add(kind, 0, columns, values);
  PruneState state;
  PruneScratch scratch;
  const Signals signals = store.view();
  return pruner.select({.block = block,
                        .signals = signals,
                        .budget = budget,
                        .model = PrunedModel{},
                        .hook = {HookPoint::kAfterProjector}},
                       state, scratch);
}

Budget keep(std::int64_t tokens) {
  Budget budget;
  budget.tokens = tokens;
  budget.shared = true;
  return budget;
}

std::vector<std::int32_t> frames_of(const VisualBlock& block, const PrunePlan& plan) {
  std::vector<std::int32_t> out;
  for (const TokenIndex i : plan.kept) out.push_back(block[i].frame);
  return out;
}

// Angles of three frames of four tokens: places 0 and 3 stand still, place 1 turns by 60 degrees
// in the last frame, place 2 by 90 in the second and 1 in the third.
const std::vector<double> kTurning = {0, 10, 20, 30, 0, 10, 110, 30, 0, 70, 111, 30};

TEST(TemporalMerge, WhatStandsStillIsKeptOnce) {
  const VisualBlock block = video_block(3, 2, 2);
  const Temporal method;
  const PrunePlan plan =
      plan_for(method, block, keep(6), SignalKind::kEmbeddings, 2, at_degrees(kTurning));
  EXPECT_EQ(plan.kept, (std::vector<TokenIndex>{0, 1, 2, 3, 6, 9}));
  ASSERT_EQ(plan.rule, MergeRule::kSizeWeightedMean);
  std::vector<std::pair<TokenIndex, TokenIndex>> merges;
  for (const Merge& merge : plan.merges) merges.push_back({merge.source, merge.destination});
  // Into the last that stays at the place: 10, a degree off, into 6 of its own place.
  EXPECT_EQ(merges, (std::vector<std::pair<TokenIndex, TokenIndex>>{
                        {4, 0}, {5, 1}, {7, 3}, {8, 0}, {10, 6}, {11, 3}}));
  const PrunedBlock out = apply(plan, block, matrix(at_degrees(kTurning), 2));
  EXPECT_EQ(out.block[0].size, 3) << "three frames of one token";
  EXPECT_EQ(out.block[4].size, 2);
  EXPECT_EQ(out.block[5].size, 1);
  EXPECT_FLOAT_EQ(out.features[0], 1.0f);
}

TEST(TemporalMerge, UnlikeTokensGoWithoutAMerge) {
  const VisualBlock block = video_block(2, 1, 2);
  const auto rows = at_degrees({0, 0, 80, 100});
  const PrunePlan plan = plan_for(Temporal(), block, keep(3), SignalKind::kEmbeddings, 2, rows);
  EXPECT_EQ(plan.kept, (std::vector<TokenIndex>{0, 1, 3}));
  EXPECT_TRUE(plan.merges.empty());
  const PrunePlan gone = plan_for(Temporal({.merge = false}), block, keep(2),
                                  SignalKind::kEmbeddings, 2, at_degrees({0, 0, 1, 1}));
  EXPECT_TRUE(gone.merges.empty());
  EXPECT_EQ(gone.kept, (std::vector<TokenIndex>{0, 1}));
}

TEST(TemporalMerge, FindsItsOwnNumber) {
  const VisualBlock block = video_block(3, 2, 2);
  Budget own;
  own.adaptive = true;
  EXPECT_EQ(plan_for(Temporal({.alike = 0.9}), block, own, SignalKind::kEmbeddings, 2,
                     at_degrees(kTurning))
                .kept,
            (std::vector<TokenIndex>{0, 1, 2, 3, 6, 9}));
  // A slow turn adds up: 20 degrees a frame are news when they are 40 from what was kept.
  const VisualBlock line = video_block(5, 1, 1);
  EXPECT_EQ(
      plan_for(Temporal(), line, own, SignalKind::kEmbeddings, 2, at_degrees({0, 20, 40, 60, 80}))
          .kept,
      (std::vector<TokenIndex>{0, 2, 4}));
}

TEST(TemporalMerge, EverythingKeptIsEverything) {
  const VisualBlock block = video_block(3, 2, 2);
  const std::vector<float> rows = at_degrees(kTurning);
  const PrunePlan plan = plan_for(Temporal(), block, keep(12), SignalKind::kEmbeddings, 2, rows);
  EXPECT_TRUE(plan.merges.empty());
  EXPECT_EQ(apply(plan, block, matrix(rows, 2)).features, rows);
}

TEST(TemporalMerge, AImageIsThinnedEvenly) {
  const VisualBlock block = video_block(1, 1, 8);
  const std::vector<float> rows(16, 1.0f);
  EXPECT_EQ(plan_for(Temporal(), block, keep(2), SignalKind::kEmbeddings, 2, rows).kept,
            (std::vector<TokenIndex>{2, 6}));
}

// Equal tokens of the first frame compete with those of the last one: as one set they are copies.
TEST(VideoBudget, DivPruneSeesAllFramesAsOneSet) {
  const VisualBlock block = video_block(2, 1, 4);
  const auto rows = at_degrees({0, 60, 120, 180, 0, 60, 120, 179});
  Budget four = keep(4);
  const PrunePlan one = plan_for(DivPrune(), block, four, SignalKind::kEmbeddings, 2, rows);
  std::set<int> places;
  for (const TokenIndex i : one.kept) places.insert(static_cast<int>(i % 4));
  EXPECT_EQ(places.size(), 4u) << "no place is kept twice";
  four.scope = Scope::kPerFrame;
  EXPECT_EQ(frames_of(block, plan_for(DivPrune(), block, four, SignalKind::kEmbeddings, 2, rows)),
            (std::vector<std::int32_t>{0, 0, 1, 1}));
}

TEST(VideoBudget, EveryFrameHasItsShareUnderEveryMethodOfTheProjector) {
  const VisualBlock block = video_block(4, 3, 3);
  for (const PrunerRow& row : pruner_table()) {
    if (row.where != "after the projector") continue;
    Budget budget = keep(12);
    budget.scope = Scope::kPerFrame;
    PruneScratch scratch;
    const auto pruner = make_pruner(row.name);
    const ChainResult out =
        run_chain(*pruner, block, PrunedModel{}, budget, noise_source(3), scratch);
    std::array<int, 4> kept{};
    for (const std::uint32_t i : out.survivors) {
      ++kept[static_cast<std::size_t>(block.tokens[i].frame)];
    }
    EXPECT_EQ(kept, (std::array<int, 4>{3, 3, 3, 3})) << row.name;
  }
}

// Worked out by hand: 0.5 of a sum of 1 is enough with one token; three more places go evenly over
// the eleven that are left: the first, the sixth and the last of them.
TEST(VerifierGuided, TheFewestThatHoldTheShareThenEvenly) {
  const VisualBlock block = video_block(3, 2, 2);
  std::vector<float> scores(12, 0.5f / 11);
  scores[5] = 0.5f;
  const PrunePlan plan =
      plan_for(VerifierGuided(), block, keep(4), SignalKind::kVerifierScores, 1, scores);
  EXPECT_EQ(plan.kept, (std::vector<TokenIndex>{0, 5, 6, 11}));
  // A share of 0.58 wants two more of the others, the first of equals, and one place is left over:
  // the first of the nine.
  EXPECT_EQ(plan_for(VerifierGuided({.share = 0.58}), block, keep(4), SignalKind::kVerifierScores,
                     1, scores)
                .kept,
            (std::vector<TokenIndex>{0, 1, 2, 5}));
}

TEST(VerifierGuided, NeverMoreThanTheBudgetAndNoneTwice) {
  const VisualBlock block = video_block(4, 5, 5);
  for (const std::int64_t count : {0, 1, 2, 7, 50, 99, 100, 500}) {
    for (const double share : {0.0, 0.4, 1.0}) {
      const PrunePlan plan = plan_for(VerifierGuided({.share = share}), block, keep(count),
                                      SignalKind::kVerifierScores, 1, noise_list(4, 100));
      EXPECT_EQ(static_cast<std::int64_t>(plan.kept.size()), std::min<std::int64_t>(count, 100));
      EXPECT_TRUE(std::is_sorted(plan.kept.begin(), plan.kept.end()));
      EXPECT_EQ(std::set<TokenIndex>(plan.kept.begin(), plan.kept.end()).size(), plan.kept.size());
    }
  }
}

TEST(VerifierGuided, WithoutAVerifyItIsEven) {
  const VisualBlock block = video_block(1, 1, 9);
  const PrunePlan plan = plan_for(VerifierGuided(), block, keep(3), SignalKind::kEmbeddings, 1,
                                  std::vector<float>(9, 1.0f));
  EXPECT_EQ(plan.kept, (std::vector<TokenIndex>{0, 4, 8}));
}

}  // namespace
}  // namespace tessera::video_methods_test
