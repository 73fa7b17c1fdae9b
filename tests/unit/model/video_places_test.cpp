// Rotary tables and added places of videos, by hand: angles of chosen places, rows in front and
// after, YaRN on each axis, roundings.
#include <gtest/gtest.h>

#include <cmath>

#include "engine/nn/rope_table.h"

namespace tessera::video_places_test {
namespace {

// The published shape: 5 grids of 40x64, heads of 128: 22 pairs by time, 21 by row, 21 by column.
RopeSpec published() {
  return {.layout = RopeLayout::kGrid3d,
          .theta = 500000.0,
          .grid_times = 5,
          .grid_rows = 40,
          .grid_cols = 64,
          .multiple_of = 64};
}

TEST(VideoRope, PairsOfAHead) {
  EXPECT_EQ(axis_pairs(128), (std::array<std::int64_t, 3>{22, 21, 21}));
  EXPECT_EQ(axis_pairs(16), (std::array<std::int64_t, 3>{4, 2, 2}));
  EXPECT_EQ(axis_pairs(4096), (std::array<std::int64_t, 3>{684, 682, 682}));
}

TEST(VideoRope, AnglesOfAPlace) {
  const auto backend = make_backend("cpu", {.threads = 1});
  const RopeTable table = make_rope_table(*backend, published(), 128);
  ASSERT_EQ(table.cos.shape(), (Shape{12800, 64}));
  // t = 3, row 17, column 45.
  const std::int64_t row = (3 * 2560 + 17 * 64 + 45) * 64;
  const auto expect_angle = [&](std::int64_t pair, double angle) {
    EXPECT_NEAR(table.cos.f32()[row + pair], std::cos(angle), 4e-6) << pair;
    EXPECT_NEAR(table.sin.f32()[row + pair], std::sin(angle), 4e-6) << pair;
  };
  expect_angle(0, 3.0);
  expect_angle(1, 3.0 * 0.5507518);  // 500000^(-2/44)
  expect_angle(22, 17.0);
  expect_angle(23, 17.0 * std::pow(500000.0, -2.0 / 42.0));
  expect_angle(42, 17.0 * std::pow(500000.0, -40.0 / 42.0));
  expect_angle(43, 45.0);
  expect_angle(63, 45.0 * std::pow(500000.0, -40.0 / 42.0));
}

TEST(VideoRope, RowsInFrontAndAfterTurnNothing) {
  const auto backend = make_backend("cpu", {.threads = 1});
  RopeSpec spec = published();
  const RopeTable plain = make_rope_table(*backend, spec, 128);
  spec.condition_rows = 1;
  EXPECT_EQ(spec.rows(), 12864);
  const RopeTable table = make_rope_table(*backend, spec, 128);
  for (const std::int64_t row : {std::int64_t{0}, std::int64_t{12801}, std::int64_t{12863}}) {
    for (std::int64_t pair = 0; pair < 64; ++pair) {
      EXPECT_EQ(table.cos.f32()[row * 64 + pair], 1.0f);
      EXPECT_EQ(table.sin.f32()[row * 64 + pair], 0.0f);
    }
  }
  for (std::int64_t i = 0; i < 12800 * 64; i += 997) {
    EXPECT_EQ(table.cos.f32()[64 + i], plain.cos.f32()[i]);
  }
}

// Over 40 rows the fastest pair turns 6.4 times, which is more than 4; over 3 grids less than half
// a time. In the row's second pair 3.4 turns lie 0.80 of the way from 1 to 4.
TEST(VideoRope, YarnSlowsWhatTurnsSeldom) {
  const auto backend = make_backend("cpu", {.threads = 1});
  RopeSpec spec = published();
  spec.yarn = {.factor = 2.0, .fast = 4.0, .slow = 1.0, .original_times = 3, .original_rows = 40};
  const RopeTable table = make_rope_table(*backend, spec, 128);
  const auto angle = [&](std::int64_t t, std::int64_t y, std::int64_t x, std::int64_t pair) {
    const std::int64_t at = (t * 2560 + y * 64 + x) * 64 + pair;
    return std::atan2(double{table.sin.f32()[at]}, double{table.cos.f32()[at]});
  };
  EXPECT_NEAR(angle(1, 0, 0, 0), 0.5, 1e-6);
  EXPECT_NEAR(angle(0, 1, 0, 22), 1.0, 1e-6);
  EXPECT_NEAR(angle(0, 0, 1, 43), 1.0, 1e-6);
  const double second = std::pow(500000.0, -2.0 / 42.0);  // 0.5353
  const double turns = 40.0 * second / (2.0 * 3.14159265358979);
  const double kept = (turns - 1.0) / 3.0;
  EXPECT_NEAR(kept, 0.80, 0.01);
  EXPECT_NEAR(angle(0, 1, 0, 23), second * ((1 - kept) / 2 + kept), 1e-6);
  const double last = std::pow(500000.0, -40.0 / 42.0);
  EXPECT_NEAR(angle(0, 39, 0, 42), 39.0 * last / 2, 1e-6);
}

TEST(VideoRope, RoundedTablesAreInBf16) {
  const auto backend = make_backend("cpu", {.threads = 1});
  RopeSpec spec = published();
  const RopeTable exact = make_rope_table(*backend, spec, 128);
  spec.rounded = true;
  const RopeTable rounded = make_rope_table(*backend, spec, 128);
  for (std::int64_t i = 0; i < 12800 * 64; i += 331) {
    EXPECT_EQ(rounded.sin.f32()[i], bf16_to_float(float_to_bf16(exact.sin.f32()[i])));
  }
}

TEST(VideoPlaces, SinesThenCosinesOfEachAxis) {
  const auto backend = make_backend("cpu", {.threads = 1});
  RopeSpec spec = published();
  spec.condition_rows = 1;
  const Tensor table = make_place_table(*backend, spec, 20);  // 8 by time, 6 by row, 6 by column
  ASSERT_EQ(table.shape(), (Shape{12864, 20}));
  const auto value = [&](std::int64_t row, std::int64_t element) {
    return double{bf16_to_float(table.view().as<std::uint16_t>()[row * 20 + element])};
  };
  const std::int64_t row = 1 + 2 * 2560 + 7 * 64 + 30;
  const double tolerance = 1.0 / 256;
  EXPECT_NEAR(value(row, 0), std::sin(2.0), tolerance);
  EXPECT_NEAR(value(row, 1), std::sin(0.2), tolerance);  // 10000^(-1/4) = 0.1
  EXPECT_NEAR(value(row, 4), std::cos(2.0), tolerance);
  EXPECT_NEAR(value(row, 8), std::sin(7.0), tolerance);
  EXPECT_NEAR(value(row, 9), std::sin(7.0 * 0.0464159), tolerance);  // 10000^(-1/3)
  EXPECT_NEAR(value(row, 11), std::cos(7.0), tolerance);
  EXPECT_NEAR(value(row, 14), std::sin(30.0), tolerance);
  EXPECT_NEAR(value(row, 19), std::cos(30.0 * 0.00215443), tolerance);
  for (std::int64_t element = 0; element < 20; ++element) {
    EXPECT_EQ(value(0, element), 0.0);
    EXPECT_EQ(value(12801, element), 0.0);
  }
}

}  // namespace
}  // namespace tessera::video_places_test
