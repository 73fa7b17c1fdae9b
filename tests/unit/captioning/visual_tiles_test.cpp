// Where an image's patches lie on it.
#include "apps/runtime/visual_tiles.h"

#include <gtest/gtest.h>

namespace tessera::visual_tiles_test {
namespace {

VisualBlock block_of(std::int32_t rows, std::int32_t columns) {
  VisualBlock out;
  for (std::int32_t row = 0; row < rows; ++row) {
    for (std::int32_t column = 0; column < columns; ++column) {
      out.tokens.push_back({.tile = 0, .row = row, .column = column});
    }
  }
  return out;
}

// 400x200 pixels, resized to 200x100: its middle is cut out, or it stands on a square.
TEST(VisualTiles, AViewLiesOnThePartThatItShows) {
  PreprocessPlan plan{.width = 400, .height = 200, .resized_width = 200, .resized_height = 100};
  plan.canvas_width = plan.canvas_height = 100;
  plan.left = -50;
  const ShownPart cut = shown_part(plan);
  EXPECT_EQ(cut.left, 0.25);
  EXPECT_EQ(cut.top, 0);
  EXPECT_EQ(cut.width, 0.5);
  EXPECT_EQ(cut.height, 1);
  plan.canvas_width = plan.canvas_height = 200;
  plan.left = 0;
  plan.top = 50;
  const ShownPart padded = shown_part(plan);
  EXPECT_EQ(padded.left, 0);
  EXPECT_EQ(padded.top, -0.5);
  EXPECT_EQ(padded.width, 1);
  EXPECT_EQ(padded.height, 2);

  const VisualBlock whole = block_of(2, 3);
  VisualBlock kept = whole;
  kept.tokens.erase(kept.tokens.begin() + 1);
  const std::vector<VisualTile> tiles = visual_tiles(whole, kept, {}, padded);
  ASSERT_EQ(tiles.size(), 1u);
  EXPECT_EQ(tiles[0].top, -0.5);
  EXPECT_EQ(tiles[0].height, 2);
  EXPECT_EQ(tiles[0].kept, (std::vector<std::uint8_t>{1, 0, 1, 1, 1, 1}));
  // A view of several shows the whole image.
  plan.views = 5;
  EXPECT_EQ(shown_part(plan).top, 0);
  EXPECT_EQ(shown_part(plan).height, 1);
}

}  // namespace
}  // namespace tessera::visual_tiles_test
