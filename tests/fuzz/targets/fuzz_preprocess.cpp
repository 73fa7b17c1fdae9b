// Geometry of preprocessing: a byte chooses the family, four the size, one whether pixels are made
// too, with views of few pixels. Oracles: everything lies inside what holds it, the tokens are
// counted again one by one, and no pixel is read outside of its image.
#include <cmath>

#include "engine/core/error.h"
#include "engine/families/registry.h"
#include "tests/fuzz/targets/fuzz_support.h"
#include "vision/image/preprocess.h"

namespace tessera::fuzz {
namespace {

std::int64_t count_tokens(const PreprocessPolicy& policy, const PreprocessPlan& plan) {
  const std::int64_t cell = policy.patch * policy.merge;
  std::int64_t tokens = 0;
  for (std::int64_t view = 0; view < plan.views; ++view) {
    const bool tile = plan.base == BaseView::kFirst && view > 0;
    if (!tile) tokens += (plan.view_width / cell) * (plan.view_height / cell);
  }
  if (plan.base != BaseView::kFirst) return tokens;
  for (std::int64_t row = 0; row < plan.packed_rows; ++row) tokens += plan.packed_cols + 1;
  return tokens;
}

void check_plan(const PreprocessPolicy& policy, const PreprocessPlan& plan) {
  const std::int64_t cell = policy.patch * policy.merge;
  require(plan.view_width > 0 && plan.view_height > 0, "views have pixels");
  require(plan.view_width / cell >= 1 && plan.view_height / cell >= 1, "views have tokens");
  require(plan.views == plan.tiles.rows * plan.tiles.cols + 1, "views");
  require(plan.resized_width > 0 && plan.resized_height > 0, "a resized size");
  const bool tiled = plan.base != BaseView::kOnly;
  require(plan.canvas_width == plan.view_width * (tiled ? plan.tiles.cols : 1), "canvas width");
  require(plan.canvas_height == plan.view_height * (tiled ? plan.tiles.rows : 1), "canvas height");
  const auto placed = [](std::int64_t at, std::int64_t length, std::int64_t room) {
    return length <= room ? at >= 0 && at + length <= room : at <= 0 && at + length >= room;
  };
  require(placed(plan.left, plan.resized_width, plan.canvas_width), "columns inside the canvas");
  require(placed(plan.top, plan.resized_height, plan.canvas_height), "rows inside the canvas");
  require(plan.tokens == count_tokens(policy, plan), "tokens");
  if (plan.base == BaseView::kFirst) {
    require(plan.map_top >= 0 && plan.map_left >= 0 && plan.map_rows >= 0 && plan.map_cols >= 0,
            "map");
    require(plan.map_top + plan.map_rows <= plan.tiles.rows * plan.view_rows, "map rows");
    require(plan.map_left + plan.map_cols <= plan.tiles.cols * plan.view_cols, "map columns");
    require(plan.packed_rows <= plan.map_rows && plan.packed_cols <= plan.map_cols, "packed map");
    require(plan.newlines == plan.packed_rows, "newlines");
  }
  if (policy.mode == ResizeMode::kMultiples) {
    require(plan.view_width % cell == 0 && plan.view_height % cell == 0, "whole cells");
    const std::int64_t area = plan.view_width * plan.view_height;
    require(area <= policy.max_pixels || std::min(plan.view_width, plan.view_height) == cell,
            "most");
    require(area >= policy.min_pixels, "least");
  }
}

// The family's geometry with views of a few pixels, so that pixels cost little.
PreprocessPolicy small(PreprocessPolicy policy) {
  policy.patch = 2;
  if (policy.side != 0) policy.side = 3 * policy.patch * policy.merge;  // three tokens
  policy.longest = 4 * policy.side;
  policy.longest_cap = 5 * policy.side;
  policy.min_pixels = 64;
  policy.max_pixels = 1024;
  policy.shortest = std::min<std::int64_t>(policy.shortest, 3);
  return policy;
}

void check_pixels(const PreprocessPolicy& policy, std::int64_t width, std::int64_t height) {
  DecodedImage image(width, height, width % 2 == 0 ? 3 : 4, "noise");
  Choice choice(static_cast<unsigned>(width * 1000 + height));
  for (std::uint8_t& byte : image.pixels) byte = static_cast<std::uint8_t>(choice.next());
  const PreprocessedImage out = preprocess(policy, image);
  check_plan(policy, out.plan);
  require(static_cast<std::int64_t>(out.views.size()) == out.plan.views, "as many views");
  for (const EncoderView& view : out.views) {
    require(view.width == out.plan.view_width && view.height == out.plan.view_height, "view size");
    for (const float value : view.values) require(std::abs(value) < 3, "normalised values");
    require(patch_rows(policy, view, 2).size() == view.values.size() * 2, "patch rows");
  }
}

}  // namespace
}  // namespace tessera::fuzz

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  using namespace tessera;
  std::vector<std::string> seeds;
  for (std::size_t i = 0; i < preprocess_policy_names().size(); ++i) {
    const char policy = static_cast<char>(i);
    seeds.push_back({policy, 40, 0, 30, 0, 1});
    seeds.push_back({policy, 9, 0, 60, 0, 1});
    seeds.push_back({policy, '\x80', 7, '\x38', 4, 0});
    seeds.push_back({policy, 1, 0, 1, 0, 0});
  }
  fuzz::write_seeds_if_asked(seeds);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tessera;
  if (size < 6) return 0;
  static const std::vector<std::string> kNames = preprocess_policy_names();
  const PreprocessPolicy policy = preprocess_policy(kNames[data[0] % kNames.size()]);
  const std::int64_t width = 1 + (data[1] | data[2] << 8), height = 1 + (data[3] | data[4] << 8);
  try {
    if (data[5] % 2 == 1) {
      fuzz::check_pixels(fuzz::small(policy), 1 + width % 100, 1 + height % 100);
    } else {
      fuzz::check_plan(policy, plan_preprocess(policy, width, height));
    }
  } catch (const Error& error) {
    fuzz::require(error.info().code == "E_PICTURE_ASPECT", "thin images only");
  }
  return 0;
}
