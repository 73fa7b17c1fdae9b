// HiRED: budgets, the mapping from the view of the whole image to tiles, and what the published
// strips do instead.
#include "vision/pruning/hired.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "tests/support/llava_next_image.h"
#include "tests/support/pruning_chain.h"

namespace tessera::hired_test {
namespace {

constexpr int kLayer = 22;

std::vector<std::int64_t> kept_by_tile(const VisualBlock& block, const PrunePlan& plan,
                                       std::size_t tiles) {
  std::vector<std::int64_t> out(tiles);
  for (const TokenIndex i : plan.kept) {
    if (block[i].tile >= 0) ++out[static_cast<std::size_t>(block[i].tile)];
  }
  return out;
}

Budget rate(double ratio) {
  Budget budget;
  budget.ratio = ratio;
  return budget;
}

PrunePlan run(const VisualBlock& block, const std::vector<float>& first,
              const std::vector<float>& last, const Budget& budget,
              const Hired::Settings& settings = {}) {
  SignalStore store;
  store.add(SignalKind::kClsRow, 0, block.count(), first);
  store.add(SignalKind::kClsRow, kLayer, block.count(), last);
  return select_once(Hired(settings), block, store, budget, {.tiles = 5});
}

// An image of 2 x 2 tiles without padding and without newlines.
VisualBlock square_image() {
  VisualBlock block = llava_next_image(672, 672);
  std::erase_if(block.tokens, [](const VisualToken& t) { return t.kind == TokenKind::kNewline; });
  return block;
}

TEST(Hired, WorkedBudgets) {
  struct Golden {
    std::int32_t width, height;
    double rate;
    std::int64_t total, base;
  };
  for (const Golden g : {Golden{672, 672, .2, 576, 288},
                         {672, 672, .1, 288, 144},
                         {672, 672, .4, 1152, 576},
                         {1008, 336, .2, 460, 230},
                         {672, 336, .2, 345, 172}}) {
    VisualBlock block = llava_next_image(g.width, g.height);
    std::erase_if(block.tokens, [](const VisualToken& t) { return t.kind == TokenKind::kNewline; });
    const auto row = std::vector<float>(block.tokens.size(), 1.0f);
    const PrunePlan plan = run(block, row, row, rate(g.rate));
    const auto tiles = static_cast<std::size_t>(block.count() / 576);
    const auto kept = kept_by_tile(block, plan, tiles);
    EXPECT_EQ(kept[0], g.base) << g.width << "x" << g.height << " " << g.rate;
    EXPECT_LE(plan.chosen, g.total);
    EXPECT_GE(plan.chosen, g.total - static_cast<std::int64_t>(tiles) + 2);
  }
}

TEST(Hired, OneTileIsPlainTopK) {
  const VisualBlock block = llava_block();
  const auto scores = noise_list(1, 576);
  const PrunePlan plan = run(block, scores, scores, rate(0.2));
  EXPECT_EQ(plan.chosen, 115) << "int(576 x 0.2)";
  PruneScratch scratch;
  const auto best = top_places(scores, 115, scratch);
  EXPECT_EQ(plan.kept, std::vector<TokenIndex>(best.begin(), best.end()));
}

TEST(Hired, TheTileUnderAPatchOfTheView) {
  const VisualBlock wide = llava_next_image(640, 480);
  for (std::int32_t i = 0; i < 24; ++i) {
    EXPECT_EQ(tile_under(wide.grid, i, 0) / 2, i < 12 ? 0 : 1) << "row " << i;
    EXPECT_EQ(tile_under(wide.grid, 0, i) % 2, i < 12 ? 0 : 1) << "column " << i;
  }
  const VisualBlock banner = llava_next_image(1000, 300);
  ASSERT_EQ(banner.grid.columns, 3);
  for (std::int32_t i = 0; i < 24; ++i) {
    EXPECT_EQ(tile_under(banner.grid, i, 0), 0) << "every row in tile row 0";
    EXPECT_EQ(tile_under(banner.grid, 0, i), i / 8);
  }
}

// All early attention in one quadrant: that quadrant's tile gets all. The published strips, kept as
// an option, give it to the tile at the end of the same band.
TEST(Hired, AQuadrantOfTheViewFeedsItsTile) {
  const VisualBlock block = square_image();
  const auto last = noise_list(2, block.tokens.size());
  for (std::int32_t quadrant = 0; quadrant < 4; ++quadrant) {
    std::vector<float> first(block.tokens.size());
    for (std::size_t i = 0; i < 576; ++i) {
      const VisualToken& token = block.tokens[i];
      if (token.row / 12 * 2 + token.column / 12 == quadrant) first[i] = 1;
    }
    const auto kept = kept_by_tile(block, run(block, first, last, rate(0.2)), 5);
    std::vector<std::int64_t> want = {288, 0, 0, 0, 0};
    want[static_cast<std::size_t>(quadrant) + 1] = 288;
    EXPECT_EQ(kept, want);
    const auto strips =
        kept_by_tile(block, run(block, first, last, rate(0.2), {.parity = true}), 5);
    EXPECT_NE(strips, want) << "injected fault: strips are not quadrants";
  }
}

// Parity: the top half of the view's patches, counted in bands of six rows.
TEST(Hired, ParityCountsOnesInStrips) {
  const VisualBlock block = square_image();
  std::vector<float> first(block.tokens.size());
  for (std::size_t i = 0; i < 576; ++i) {
    const std::size_t row = i / 24;
    const bool one = row < 6 || (row >= 18 && row < 21) || (row >= 12 && row < 15);
    first[i] = one ? 1 + noise(3, static_cast<std::uint32_t>(i))
                   : noise(3, static_cast<std::uint32_t>(i)) / 2;
  }
  const auto last = noise_list(4, block.tokens.size());
  const auto kept = kept_by_tile(block, run(block, first, last, rate(0.2), {.parity = true}), 5);
  EXPECT_EQ(kept, (std::vector<std::int64_t>{288, 144, 0, 72, 72}));
}

TEST(Hired, SumsOfBudgets) {
  const VisualBlock block = square_image();
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    auto first = noise_list(seed, block.tokens.size());
    for (float& value : first) value = std::abs(value);
    const PrunePlan plan = run(block, first, first, rate(0.15));
    const std::int64_t total = 432, sub = total - 216;
    const auto kept = kept_by_tile(block, plan, 5);
    const std::int64_t sum = std::accumulate(kept.begin() + 1, kept.end(), std::int64_t{0});
    EXPECT_LE(sum, sub);
    EXPECT_GE(sum, sub - 3);
    EXPECT_EQ(kept[0], 216);
  }
}

TEST(Hired, NothingLookedAtIsSplitEvenly) {
  const VisualBlock block = square_image();
  const std::vector<float> zero(block.tokens.size());
  const auto kept =
      kept_by_tile(block, run(block, zero, zero, rate(0.2), {.alpha = 1, .parity = true}), 5);
  EXPECT_EQ(kept[0], 576);
  const auto even = kept_by_tile(block, run(block, zero, zero, rate(0.2)), 5);
  EXPECT_EQ(even, (std::vector<std::int64_t>{288, 72, 72, 72, 72}));
}

TEST(Hired, PaddingIsNeverKept) {
  const VisualBlock block = llava_next_image(640, 480, Padding::kFlagged);
  std::vector<float> row(block.tokens.size());
  for (std::size_t i = 0; i < row.size(); ++i) {
    row[i] = block.tokens[i].padded ? 5.0f : noise(5, static_cast<std::uint32_t>(i));
  }
  const PrunePlan plan = run(block, row, row, rate(0.2));
  const PrunePlan parity = run(block, row, row, rate(0.2), {.parity = true});
  for (const TokenIndex i : plan.kept) EXPECT_FALSE(block[i].padded);
  for (const TokenIndex i : parity.kept) EXPECT_FALSE(block[i].padded);
  EXPECT_GE(plan.chosen, 460 - 3) << "a fifth of 2304 patches that show the image";
  EXPECT_LT(parity.chosen, 300) << "the published code loses what it gave to padding";
}

TEST(Hired, NewlinesAsHeard) {
  const VisualBlock block = llava_next_image(640, 480);
  const auto row = noise_list(6, block.tokens.size());
  Budget budget = rate(0.2);
  const auto newlines = [&](const PrunePlan& plan) {
    return std::count_if(plan.kept.begin(), plan.kept.end(),
                         [&](TokenIndex i) { return block[i].kind == TokenKind::kNewline; });
  };
  EXPECT_EQ(newlines(run(block, row, row, budget)), 36);
  budget.outcome[static_cast<std::size_t>(TokenKind::kNewline)] = TokenOutcome::kDrop;
  EXPECT_EQ(newlines(run(block, row, row, budget)), 0);
  budget.outcome[static_cast<std::size_t>(TokenKind::kNewline)] = TokenOutcome::kCompete;
  EXPECT_THROW(run(block, row, row, budget), Error);
}

}  // namespace
}  // namespace tessera::hired_test
