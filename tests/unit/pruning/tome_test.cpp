// ToMe: golden merges and order, conserved sizes, and attention over merged tokens.
#include "vision/pruning/tome.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "tests/support/pruning_chain.h"
#include "vision/pruning/primitives.h"

namespace tessera::tome_test {
namespace {

const std::vector<double> kAngles = {0, 3, 50, 52, 100, 140, 141, 200, 90};

VisualBlock nine_tokens() {
  VisualBlock block = tiles_block(1, 2, 4, /*cls=*/true);
  return block;
}

PrunePlan merge(const VisualBlock& block, const std::vector<float>& keys, std::int64_t r) {
  SignalStore store;
  store.add(SignalKind::kEncoderKeys, 0, 2, keys);
  Budget nothing = keep_tokens(block.count());
  return select_once(Tome({.r = r}), block, store, r > 0 ? keep_tokens(0) : nothing);
}

TEST(Tome, GoldenMergesAndOrder) {
  const VisualBlock block = nine_tokens();
  const PrunePlan plan = merge(block, at_degrees(kAngles), 2);
  ASSERT_EQ(plan.merges.size(), 2u);
  std::vector<std::array<TokenIndex, 2>> merges;
  for (const Merge& m : plan.merges) merges.push_back({m.source, m.destination});
  std::sort(merges.begin(), merges.end());
  EXPECT_EQ(merges, (std::vector<std::array<TokenIndex, 2>>{{2, 3}, {6, 5}}));
  const PrunedBlock pruned = apply(plan, block, matrix(at_degrees(kAngles), 2));
  std::vector<std::int32_t> order;
  for (const VisualToken& token : pruned.block.tokens) order.push_back(token.position[0]);
  EXPECT_EQ(order, (std::vector<std::int32_t>{0, 4, 8, 1, 3, 5, 7}));
  std::vector<float> sizes;
  for (const VisualToken& token : pruned.block.tokens) sizes.push_back(token.size);
  EXPECT_EQ(sizes, (std::vector<float>{1, 1, 1, 1, 2, 2, 1}));
  EXPECT_EQ(pruned.block.tokens[0].kind, TokenKind::kCls);
}

TEST(Tome, NothingToMergeIsTheIdentity) {
  const VisualBlock block = nine_tokens();
  const PrunePlan plan = merge(block, at_degrees(kAngles), 0);
  EXPECT_EQ(plan.kept, count_up(9));
  EXPECT_TRUE(plan.order.empty());
  EXPECT_TRUE(plan.merges.empty());
}

// CLS is as like to its neighbour as can be and never merges; at most half of the others do.
TEST(Tome, ClsStaysAndHalfIsTheMost) {
  const VisualBlock block = nine_tokens();
  const std::vector<float> keys(18, 1.0f);
  const PrunePlan plan = merge(block, keys, 100);
  EXPECT_EQ(plan.merges.size(), 4u);
  for (const Merge& m : plan.merges) EXPECT_NE(m.source, 0);
  EXPECT_TRUE(std::binary_search(plan.kept.begin(), plan.kept.end(), 0));
}

TEST(Tome, SizesAreConservedThroughAllLayers) {
  const VisualBlock block = tiles_block(2, 6, 7, true);
  PruneScratch scratch;
  for (const std::int64_t keep : {40, 20, 8, 3}) {
    const ChainResult out =
        run_chain(Tome({}), block, {.tiles = 2}, keep_tokens(keep), noise_source(2), scratch);
    EXPECT_EQ(out.block.count(), 2 * (keep + 1)) << "patches and CLS of two tiles";
    std::array<float, 2> sizes{};
    for (const VisualToken& token : out.block.tokens)
      sizes[static_cast<std::size_t>(token.tile)] += token.size;
    EXPECT_EQ(sizes, (std::array<float, 2>{43, 43}));
  }
}

// Merged features are the mean of what was merged, whatever the order of merging.
TEST(Tome, FeaturesAreMeansOfOriginals) {
  const VisualBlock block = tiles_block(1, 4, 4, true);
  PruneScratch scratch;
  const ChainResult out = run_chain(Tome({}), block, {}, keep_tokens(5), noise_source(2), scratch);
  const auto before = noise_list(99, 2 * 17);
  for (std::size_t c = 0; c < 2; ++c) {
    double sum = 0, weighted = 0;
    for (std::size_t i = 0; i < 17; ++i) sum += before[2 * i + c];
    for (std::size_t i = 0; i < out.block.tokens.size(); ++i) {
      weighted += out.block.tokens[i].size * static_cast<double>(out.features[2 * i + c]);
    }
    EXPECT_NEAR(weighted, sum, 1e-5);
  }
}

// Identical tokens are merged first; attention with ln(size) added then equals attention over all.
TEST(Tome, ProportionalAttentionOverCopiesIsExact) {
  const VisualBlock block = grid_block(2, 6);
  // Even and odd neighbours are copies: tokens 2 i and 2 i + 1.
  std::vector<float> keys;
  for (std::uint32_t i = 0; i < 12; ++i) {
    for (std::uint32_t c = 0; c < 4; ++c) keys.push_back(3 * noise(1, i / 2, c) - 1.5f);
  }
  SignalStore store;
  store.add(SignalKind::kEncoderKeys, 0, 4, keys);
  const PrunePlan plan = select_once(Tome({.r = 6}), block, store, keep_tokens(0));
  const PrunedBlock pruned = apply(plan, block, matrix(keys, 4));
  ASSERT_EQ(pruned.block.count(), 6);
  std::vector<float> bias;
  for (const VisualToken& token : pruned.block.tokens) bias.push_back(std::log(token.size));
  const auto query = noise_list(2, 4);
  const auto softmax = [&](const std::vector<float>& rows, const std::vector<float>& added) {
    std::vector<double> weights(rows.size() / 4, 0.0);
    double total = 0;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      for (std::size_t c = 0; c < 4; ++c) {
        weights[i] += 2.0 * static_cast<double>(query[c]) * static_cast<double>(rows[4 * i + c]);
      }
      weights[i] = std::exp(weights[i] + (added.empty() ? 0.0 : static_cast<double>(added[i])));
      total += weights[i];
    }
    for (double& weight : weights) weight /= total;
    return weights;
  };
  const auto all = softmax(keys, {});
  const auto few = softmax(pruned.features, bias);
  for (std::size_t c = 0; c < 4; ++c) {  // the attended vector, keys as values
    double want = 0, got = 0;
    for (std::size_t i = 0; i < 12; ++i) want += all[i] * static_cast<double>(keys[4 * i + c]);
    for (std::size_t i = 0; i < 6; ++i)
      got += few[i] * static_cast<double>(pruned.features[4 * i + c]);
    EXPECT_NEAR(got, want, 1e-6);
  }
}

TEST(Tome, ConstantRateWhateverTheBudget) {
  const VisualBlock block = tiles_block(1, 4, 4);
  PruneScratch scratch;
  const ChainResult out =
      run_chain(Tome({.r = 1}), block, {.feature_layer = 4}, Budget{}, noise_source(2), scratch);
  EXPECT_EQ(out.block.count(), 16 - 5) << "layers 0 ... 4, the last whose output is read";
}

}  // namespace
}  // namespace tessera::tome_test
