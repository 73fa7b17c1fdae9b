// Parts of the viewer that need neither window nor ImGui: geometry, overlays, scripts, the checks
// of rendered frames.
#include <gtest/gtest.h>

#include <cmath>

#include "apps/lab/viewer/growth_watch.h"
#include "apps/lab/viewer/screen_check.h"
#include "apps/lab/viewer/script.h"
#include "apps/viewer/overlay.h"
#include "apps/viewer/view_geometry.h"
#include "engine/core/error.h"

namespace tessera::viewer_parts_test {
namespace {

constexpr Rect kArea{100, 50, 740, 530};  // 640 x 480

TEST(Geometry, FitsByWholeZoomsAndWholePixels) {
  const Placement placed = place({}, kArea, 64, 64);
  EXPECT_EQ(placed.zoom, 7);  // 480 / 64 = 7.5
  EXPECT_EQ(placed.left, 100 + (640 - 448) / 2);
  EXPECT_EQ(placed.top, 50 + (480 - 448) / 2);
  EXPECT_DOUBLE_EQ(place({}, kArea, 6400, 4800).zoom, 0.1);
  EXPECT_EQ(fitting_zoom(kArea, 1, 1), kMaxZoom);
}

TEST(Geometry, ZoomingKeepsThePointUnderTheMouse) {
  Viewport view;
  for (const auto& [x, y] : {std::pair{200.0, 300.0}, std::pair{420.0, 290.0}}) {
    Placement placed = place(view, kArea, 64, 64);
    const double share_x = (x - placed.left) / (placed.zoom * 64);
    const double share_y = (y - placed.top) / (placed.zoom * 64);
    view = zoomed(view, kArea, placed, 2, x, y);
    const Placement after = place(view, kArea, 64, 64);
    EXPECT_GT(after.zoom, placed.zoom);
    // Corners lie on whole pixels: half a pixel of slack.
    EXPECT_NEAR((x - after.left) / (after.zoom * 64), share_x, 0.51 / (after.zoom * 64));
    EXPECT_NEAR((y - after.top) / (after.zoom * 64), share_y, 0.51 / (after.zoom * 64));
  }
}

TEST(Geometry, ZoomStepsUpAndDownMeet) {
  Viewport view{4, 0.5, 0.5};
  const Placement placed = place(view, kArea, 64, 64);
  view = zoomed(view, kArea, placed, 3, 420, 290);
  EXPECT_EQ(view.zoom, 12);
  view = zoomed(view, kArea, place(view, kArea, 64, 64), -3, 420, 290);
  EXPECT_EQ(view.zoom, 4);
  view = zoomed(view, kArea, place(view, kArea, 64, 64), 100, 420, 290);
  EXPECT_EQ(view.zoom, kMaxZoom);
  view = zoomed(view, kArea, place(view, kArea, 64, 64), -100, 420, 290);
  EXPECT_EQ(view.zoom, kMinZoom);
}

TEST(Geometry, PanningMovesByScreenPixels) {
  const Viewport view{8, 0.5, 0.5};
  const Placement before = place(view, kArea, 64, 64);
  const Placement after = place(panned(view, before, 24, -16), kArea, 64, 64);
  EXPECT_EQ(after.left - before.left, 24);
  EXPECT_EQ(after.top - before.top, -16);
}

TEST(Geometry, PixelsAndCellsUnderAPoint) {
  const Placement placed{10, 20, 4, 32, 16};
  EXPECT_FALSE(pixel_at(placed, 9.9, 30));
  EXPECT_FALSE(pixel_at(placed, 10 + 128, 30));
  const auto pixel = pixel_at(placed, 10 + 4 * 31 + 3.9, 20 + 4 * 15 + 3.9);
  ASSERT_TRUE(pixel);
  EXPECT_EQ(pixel->x, 31);
  EXPECT_EQ(pixel->y, 15);
  const auto cell = cell_at(placed, 4, 8, 10 + 127, 20);
  ASSERT_TRUE(cell);
  EXPECT_EQ(cell->row, 0);
  EXPECT_EQ(cell->column, 7);
}

TEST(Geometry, CellsTileTheImageWithoutGaps) {
  const Placement placed{3, 5, 7, 33, 31};  // cells of no whole size
  double right = placed.left;
  for (std::int64_t column = 0; column < 8; ++column) {
    const Rect cell = cell_rect(placed, 8, 8, {0, column});
    EXPECT_EQ(cell.left, right);
    right = cell.right;
  }
  EXPECT_EQ(right, placed.rect().right);
}

TEST(Geometry, TheSplitPartsTheArea) {
  const SplitAreas parts = split_area(kArea, 0.25);
  EXPECT_EQ(parts.left.right, 260);
  EXPECT_EQ(parts.right.left, 260);
  EXPECT_EQ(split_area(kArea, -1).left.width(), 0);
  EXPECT_EQ(split_area(kArea, 2).right.width(), 0);
}

TEST(Overlays, ColoursGrowLighterAllTheWay) {
  double last = -1;
  for (int i = 0; i <= 100; ++i) {
    const Colour colour = heat_colour(i / 100.0);
    const double light = 0.2126 * colour.red + 0.7152 * colour.green + 0.0722 * colour.blue;
    EXPECT_GT(light, last) << i;
    last = light;
  }
  EXPECT_EQ(heat_colour(std::nan("")), heat_colour(0));
  EXPECT_EQ(heat_colour(7), heat_colour(1));
}

TEST(Overlays, RangesLeaveTokensOutThatDoNotStand) {
  const std::vector<TokenMark> marks = {{-1, 99, 9, 9}, {3, 2, 0.25f, 1.5f}, {4, 6, 0.5f, 0.5f}};
  const std::vector<std::int32_t> committed = {1, 4, 1, 1, 1, 1};
  const TokenGrid grid{marks, committed};
  const OverlayRange pass = overlay_range(grid, Overlay::kPass);
  EXPECT_TRUE(pass.any);
  EXPECT_EQ(pass.low, 2);
  EXPECT_EQ(pass.high, 6);
  EXPECT_EQ(pass.share(4), 0.5);
  EXPECT_EQ(overlay_range(grid, Overlay::kEntropy).high, 1.5);
  EXPECT_EQ(overlay_range(grid, Overlay::kProbability).high, 1);
  const std::vector<TokenMark> none = {{}, {}};
  EXPECT_FALSE(overlay_range({none, {}}, Overlay::kPass).any);
  const OverlayRange accepted = overlay_range(grid, Overlay::kAccepted);
  EXPECT_EQ(accepted.low, 1);
  EXPECT_EQ(accepted.high, 4) << "tokens that came with the second pass";
  EXPECT_EQ(overlay_value(grid, marks[1], Overlay::kAccepted), 4);
  EXPECT_EQ(overlay_value({marks, {}}, marks[1], Overlay::kAccepted), 0) << "unknown";
  EXPECT_EQ(describe_token(grid, marks[1], 3, 5),
            "row 3, column 5: code 3, pass 2 with 4 tokens, probability 0.250, entropy 1.50");
  EXPECT_EQ(describe_token({marks, {}}, marks[1], 3, 5),
            "row 3, column 5: code 3, pass 2, probability 0.250, entropy 1.50");
  EXPECT_EQ(describe_token(grid, marks[0], 0, 1), "row 0, column 1: not there yet");
}

TEST(Overlays, TheSmallestTileNamesTheVisualToken) {
  VisualTile whole{2, 2, 0, 0, 1, 1, {0.1f, 0.2f, 0.3f, 0.4f}, {1, 0, 1, 0}};
  VisualTile corner{1, 1, 0, 0, 0.25, 0.25, {0.9f}, {1}};
  const std::vector<VisualTile> tiles = {whole, corner};
  const auto inner = visual_token_at(tiles, 0.1, 0.1);
  ASSERT_TRUE(inner);
  EXPECT_EQ(inner->tile, &tiles[1]);
  const auto outer = visual_token_at(tiles, 0.75, 0.25);
  ASSERT_TRUE(outer);
  EXPECT_EQ(outer->column, 1);
  EXPECT_FALSE(outer->kept);
  EXPECT_EQ(describe_visual_token(*outer), "visual token row 0, column 1: pruned, score 0.200");
  EXPECT_FALSE(visual_token_at({}, 0.5, 0.5));
}

TEST(Overlays, DifferencesAreAmplifiedAndBlackWhereEqual) {
  Image a(2, 1), b(2, 1);
  a.rgb = {10, 20, 30, 0, 0, 200};
  b.rgb = {10, 20, 30, 5, 0, 0};
  const auto out = difference_image(a, b, 4);
  ASSERT_TRUE(out);
  EXPECT_EQ(out->rgb, (std::vector<std::uint8_t>{0, 0, 0, 20, 0, 255}));
  EXPECT_FALSE(difference_image(a, Image(1, 1), 4));
}

Image noise(std::int64_t width, std::int64_t height) {
  Image out(width, height);
  for (std::size_t i = 0; i < out.rgb.size(); ++i) {
    out.rgb[i] = static_cast<std::uint8_t>(i * 37 + 11);
  }
  return out;
}

// A screen with the image drawn at a whole zoom.
Image screen_of(const Image& image, const Placement& placed) {
  Image screen(200, 150);
  for (std::int64_t y = 0; y < screen.height; ++y) {
    for (std::int64_t x = 0; x < screen.width; ++x) {
      const auto at = pixel_at(placed, static_cast<double>(x), static_cast<double>(y));
      if (at) std::copy_n(image.at(at->x, at->y), 3, screen.at(x, y));
    }
  }
  return screen;
}

TEST(ScreenChecks, OneInjectedPixelIsFound) {
  const Image image = noise(16, 12);
  const Placement placed{20, 30, 5, 16, 12};
  Image screen = screen_of(image, placed);
  const Rect all{0, 0, 200, 150};
  EXPECT_TRUE(check_pixels(screen, image, placed, all).good());
  screen.at(20 + 5 * 7 + 2, 30 + 5 * 9 + 2)[1] ^= 1;
  const PixelCheck check = check_pixels(screen, image, placed, all);
  EXPECT_EQ(check.compared, 16 * 12);
  EXPECT_EQ(check.different, 1);
  EXPECT_EQ(check.first_x, 7);
  EXPECT_EQ(check.first_y, 9);
  // Out of the video, it is not looked at; without any pixel, nothing is good.
  EXPECT_TRUE(check_pixels(screen, image, placed, {0, 0, 50, 150}).good());
  EXPECT_FALSE(check_pixels(screen, image, placed, {0, 0, 10, 10}).good());
  EXPECT_FALSE(check_pixels(screen, image, {20, 30, 0.5, 16, 12}, all).good());
}

TEST(ScreenChecks, ColoursOfCellsAreCounted) {
  Image screen(40, 40);
  for (std::int64_t y = 0; y < 40; ++y) {
    for (std::int64_t x = 20; x < 40; ++x) screen.at(x, y)[0] = y < 20 ? 200 : 90;
  }
  const auto colours = cell_colours(screen, {0, 0, 10, 4, 4}, 2, 2);
  ASSERT_EQ(colours.size(), 4u);
  EXPECT_EQ(distinct(colours), 3);
  EXPECT_EQ(percentile({3, 1, 2}, 0.5), 2);
  EXPECT_EQ(percentile({}, 0.5), 0);
}

// A heat map that is off, too pale, or of another overlay must not pass for this one.
TEST(ScreenChecks, AHeatMapIsTheColoursOfItsValues) {
  const std::vector<TokenMark> marks = {
      {-1, 0, 0, 0}, {3, 1, 0.2f, 1}, {4, 2, 0.5f, 3}, {5, 2, 0.9f, 2}};
  const TokenGrid grid{marks, {}};
  std::vector<Colour> colours = {{1, 2, 3}};
  for (std::size_t i = 1; i < marks.size(); ++i) {
    colours.push_back(heat_colour(overlay_range(grid, Overlay::kEntropy)
                                      .share(overlay_value(grid, marks[i], Overlay::kEntropy))));
  }
  EXPECT_EQ(check_heat_map(colours, grid, Overlay::kEntropy).wrong, 0);
  EXPECT_EQ(check_heat_map(colours, grid, Overlay::kEntropy).kinds, 3) << "of tokens that stand";
  EXPECT_GT(check_heat_map(colours, grid, Overlay::kProbability).wrong, 0);
  for (Colour& one : colours) one.red = static_cast<std::uint8_t>(one.red / 2 + 100);
  EXPECT_EQ(check_heat_map(colours, grid, Overlay::kEntropy).wrong, 3);
}

TEST(GrowthWatch, OnlySuccessiveFramesCount) {
  GrowthWatch watch;
  const auto frames = [&](std::initializer_list<std::int64_t> rows, std::optional<bool> exact) {
    for (const std::int64_t row : rows) watch.frame(row, row, exact);
  };
  frames({1, 2, 3}, true);
  EXPECT_EQ(watch.longest(), 3);
  frames({3, 4, 5}, true);
  EXPECT_EQ(watch.longest(), 3) << "a frame without a row parts the runs";
  frames({6, 7}, {});
  EXPECT_EQ(watch.longest(), 4);
  EXPECT_EQ(watch.exact_in_longest(), 2);
  EXPECT_EQ(watch.shrinks() + watch.stale(), 0);
  frames({6}, {});
  EXPECT_EQ(watch.shrinks(), 1);
  frames({8}, false);
  EXPECT_EQ(watch.stale(), 1);
}

TEST(GrowthWatch, ARunThatNobodyLookedAtCountsForNothing) {
  GrowthWatch watch;
  for (std::int64_t row = 1; row < 20; ++row) watch.frame(row, row, {});
  EXPECT_EQ(watch.longest(), 0);
  watch.frame(20, 20, true);
  EXPECT_EQ(watch.longest(), 20);
}

TEST(Scripts, OrdersAreRead) {
  const auto lines = parse_script(
      "# a comment\n\nprompt  a red ball, 50% matte # no comment \r\n  seed 7\ncompare exact "
      "grouped\nexpect heat_map 2\nwait_done\nwait_done 12.5",
      "a.txt");
  ASSERT_EQ(lines.size(), 6u);
  EXPECT_EQ(lines[0].order, Order::kPrompt);
  EXPECT_EQ(lines[0].line, 3);
  EXPECT_EQ(lines[0].text, "a red ball, 50% matte # no comment");
  EXPECT_EQ(lines[1].numbers, std::vector<double>{7});
  EXPECT_EQ(lines[2].words, (std::vector<std::string>{"exact", "grouped"}));
  EXPECT_EQ(lines[3].words, std::vector<std::string>{"heat_map"});
  EXPECT_EQ(lines[3].numbers, std::vector<double>{2});
  EXPECT_TRUE(lines[4].numbers.empty());
  EXPECT_EQ(lines[5].numbers, std::vector<double>{12.5});
  const auto prompt = parse_script("expect prompt  a b # c", "a.txt");
  EXPECT_EQ(prompt.at(0).words, std::vector<std::string>{"prompt"});
  EXPECT_EQ(prompt.at(0).text, "a b # c");
}

TEST(Scripts, WhatIsWrongIsNamedByLineAndColumn) {
  struct Case {
    const char *text, *where, *found;
  };
  const Case cases[] = {
      {"seed 1\n  sed 2", "line 2, column 3", "'sed'"},
      {"seed", "line 1, column 5", "the line's end"},
      {"seed one", "line 1, column 6", "'one'"},
      {"seed 1.5", "line 1, column 6", "'1.5'"},
      {"seed -1", "line 1, column 6", "'-1'"},
      {"seed 1 2", "line 1, column 8", "'2'"},
      {"overlay heat", "line 1, column 9", "'heat'"},
      {"overlay none|pass", "line 1, column 9", "'none|pass'"},
      {"prompt   ", "line 1, column 10", "the line's end"},
      {"\nexpect rows", "line 2, column 8", "'rows'"},
      {"expect", "line 1, column 7", "the line's end"},
      {"split nan", "line 1, column 7", "'nan'"},
      {"frames 5000000000", "line 1, column 8", "'5000000000'"},
      {"size 1000 99999", "line 1, column 11", "'99999'"},
      {"wait_done 1e300", "line 1, column 11", "'1e300'"},
      {"expect prompt", "line 1, column 14", "the line's end"},
      {"press f13", "line 1, column 7", "'f13'"},
  };
  for (const Case& one : cases) {
    try {
      parse_script(one.text, "a.txt");
      ADD_FAILURE() << one.text;
    } catch (const Error& error) {
      EXPECT_EQ(error.info().kind, ErrorKind::kUsage);
      EXPECT_EQ(error.info().where, one.where) << one.text;
      EXPECT_EQ(error.info().found, one.found) << one.text;
      EXPECT_EQ(error.info().file, "a.txt");
    }
  }
}

}  // namespace
}  // namespace tessera::viewer_parts_test
