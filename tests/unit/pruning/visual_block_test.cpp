// Token layouts against the published counts, and the fields that selections rest on.
#include "vision/pruning/visual_block.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/support/llava_next_image.h"

namespace tessera::visual_block_test {
namespace {

std::int64_t count_kind(const VisualBlock& block, TokenKind kind) {
  return std::count_if(block.tokens.begin(), block.tokens.end(),
                       [&](const VisualToken& token) { return token.kind == kind; });
}

TEST(VisualBlock, LlavaIs576Patches) {
  const VisualBlock block = llava_block();
  EXPECT_EQ(block.count(), 576);
  EXPECT_EQ(block[0].position[0], 35);
  EXPECT_EQ(block[575].position[0], 610);
  EXPECT_EQ(block[25].row, 1);
  EXPECT_EQ(block[25].column, 1);
}

TEST(VisualBlock, LlavaNextCounts) {
  struct Golden {
    std::int32_t width, height;
    std::int64_t tokens;
  };
  for (const Golden g : {Golden{336, 336, 1176},
                         {640, 480, 2340},
                         {800, 600, 2340},
                         {1024, 768, 2340},
                         {480, 640, 2352},
                         {672, 672, 2928},
                         {1920, 1080, 1948},
                         {1000, 300, 2182},
                         {300, 1000, 2232}}) {
    EXPECT_EQ(llava_next_image(g.width, g.height).count(), g.tokens)
        << g.width << "x" << g.height;
  }
}

// The layout counts tokens one by one, the preprocessor by arithmetic.
TEST(VisualBlock, LayoutsHoldAsManyTokensAsTheirPlansSay) {
  for (std::int64_t width = 11; width < 2000; width += 97) {
    for (std::int64_t height = 11; height < 2000; height += 89) {
      const std::string size = std::to_string(width) + "x" + std::to_string(height);
      for (const char* name : {"llava-next", "llava-next-authors"}) {
        const PreprocessPlan plan = plan_preprocess(preprocess_policy(name), width, height);
        const VisualBlock block = llava_next_block(tile_grid_of(plan));
        EXPECT_EQ(block.count(), plan.tokens) << name << " " << size;
        EXPECT_EQ(count_kind(block, TokenKind::kNewline), plan.newlines) << name << " " << size;
      }
      const PreprocessPlan plan = plan_preprocess(preprocess_policy("smolvlm"), width, height);
      const TileGrid grid = tile_grid_of(plan);
      EXPECT_EQ(
          count_kind(idefics3_block(grid.rows, grid.columns, grid.side_rows), TokenKind::kPatch),
          plan.tokens)
          << size;
    }
  }
}

TEST(VisualBlock, LlavaNextFlagsWhatUnpaddingDrops) {
  const VisualBlock dropped = llava_next_image(640, 480);
  const VisualBlock flagged = llava_next_image(640, 480, Padding::kFlagged);
  EXPECT_EQ(count_kind(flagged, TokenKind::kPatch), 5 * 576);
  EXPECT_EQ(count_kind(flagged, TokenKind::kNewline), 36);
  std::vector<std::array<std::int32_t, 4>> left, right;
  for (const VisualToken& t : dropped.tokens) left.push_back({t.tile, t.row, t.column, t.map_row});
  for (const VisualToken& t : flagged.tokens) {
    if (!t.padded) right.push_back({t.tile, t.row, t.column, t.map_row});
  }
  EXPECT_EQ(left, right);
  EXPECT_EQ(flagged.grid.pad_top, 6);
  EXPECT_EQ(flagged.grid.image_rows, 36);
}

TEST(VisualBlock, LlavaNextTilesAreRowMajorAfterTheBase) {
  const VisualBlock block = llava_next_image(672, 672);
  std::set<std::int32_t> seen;
  for (const VisualToken& token : block.tokens) {
    if (token.map_row < 0) continue;
    const std::int32_t tile = 1 + token.map_row / 24 * 2 + token.map_column / 24;
    EXPECT_EQ(token.tile, tile);
    EXPECT_EQ(token.row, token.map_row % 24);
    EXPECT_EQ(token.column, token.map_column % 24);
    seen.insert(token.tile);
  }
  EXPECT_EQ(seen, (std::set<std::int32_t>{1, 2, 3, 4}));
  EXPECT_EQ(block[576 + 48].kind, TokenKind::kNewline);
}

TEST(VisualBlock, Idefics3Counts) {
  struct Golden {
    std::int32_t rows, columns, side;
    std::int64_t patches;
  };
  for (const Golden g : {Golden{3, 4, 8, 832},
                         {3, 4, 9, 1053},
                         {3, 4, 13, 2197},
                         {4, 4, 8, 1088},
                         {4, 4, 9, 1377},
                         {4, 2, 8, 576},
                         {4, 2, 13, 1521}}) {
    const VisualBlock block = idefics3_block(g.rows, g.columns, g.side);
    EXPECT_EQ(count_kind(block, TokenKind::kPatch), g.patches);
    EXPECT_EQ(count_kind(block, TokenKind::kMarker), 2 * g.rows * g.columns + g.rows + 4);
  }
}

TEST(VisualBlock, QwenCellsAreContiguousAndCarryThreeIds) {
  const VisualBlock patches = qwen_block(2, 3, 4, QwenStage::kPatches, 100, 2);
  EXPECT_EQ(patches.count(), 2 * 3 * 4 * 4);
  EXPECT_EQ(patches.cell_size, 4);
  EXPECT_EQ(patches[5].cell, 1);
  EXPECT_EQ(patches[5].row, 0);
  EXPECT_EQ(patches[5].column, 3);
  EXPECT_EQ(patches[6].row, 1);
  EXPECT_EQ(patches[6].column, 2);
  const VisualBlock merged = qwen_block(2, 3, 4, QwenStage::kMerged, 100, 2);
  EXPECT_EQ(merged[12 + 7].position, (std::array<std::int32_t, 3>{102, 101, 103}));
  const VisualBlock again = merged_block(patches);
  ASSERT_EQ(again.count(), merged.count());
  for (TokenIndex i = 0; i < merged.count(); ++i) {
    EXPECT_EQ(again[i].position, merged[i].position);
    EXPECT_EQ(again[i].row, merged[i].row);
    EXPECT_EQ(again[i].column, merged[i].column);
    EXPECT_EQ(again[i].cell, merged[i].cell);
  }
  EXPECT_EQ(again.cell_size, 1);
}

}  // namespace
}  // namespace tessera::visual_block_test
