// Oracles of several targets: what an accepted configuration keeps, and what a plan of preprocessing
// and its pixels keep.
#pragma once

#include <cmath>

#include "engine/model/model_config.h"
#include "tests/fuzz/targets/fuzz_support.h"
#include "vision/image/preprocess.h"

namespace tessera::fuzz {

inline bool within(std::int64_t value, std::int64_t low, std::int64_t high) {
  return value >= low && value <= high;
}

inline void check_transformer(const ModelConfig& model) {
  require(within(model.layers, 1, 1024), "layers");
  require(within(model.width, 1, 65536), "width");
  require(within(model.heads, 1, 1024), "heads");
  require(within(model.kv_heads, 1, model.heads) && model.heads % model.kv_heads == 0, "kv heads");
  require(model.head_dim >= 2 && model.head_dim % 2 == 0, "head width");
  require(within(model.ffn_width, 1, 1 << 20), "feed-forward width");
  require(model.norm_eps > 0 && model.rope.theta >= 1, "constants");
}

inline std::int64_t count_tokens(const PreprocessPolicy& policy, const PreprocessPlan& plan) {
  const std::int64_t cell = policy.patch * policy.merge;
  std::int64_t tokens = 0;
  for (std::int64_t view = 0; view < plan.views; ++view) {
    const bool tile = plan.base == BaseView::kFirst && view > 0;
    if (!tile) tokens += (plan.view_width / cell) * (plan.view_height / cell);
  }
  if (plan.base != BaseView::kFirst) {
    return tokens + (policy.newline_each_row ? plan.view_rows : policy.newline_at_end ? 1 : 0);
  }
  for (std::int64_t row = 0; row < plan.packed_rows; ++row) tokens += plan.packed_cols + 1;
  return tokens;
}

inline void check_plan(const PreprocessPolicy& policy, const PreprocessPlan& plan) {
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
    // What is shrunk to the most may come below the least where they are near each other.
    require(area >= policy.min_pixels || policy.max_pixels < 16 * policy.min_pixels, "least");
  }
}

// `most`: of normalised values.
inline void check_pixels(const PreprocessPolicy& policy, std::int64_t width, std::int64_t height,
                         float most = 3) {
  DecodedImage image(width, height, width % 2 == 0 ? 3 : 4, "noise");
  Choice choice(static_cast<unsigned>(width * 1000 + height));
  for (std::uint8_t& byte : image.pixels) byte = static_cast<std::uint8_t>(choice.next());
  const PreprocessedImage out = preprocess(policy, image);
  check_plan(policy, out.plan);
  require(static_cast<std::int64_t>(out.views.size()) == out.plan.views, "as many views");
  for (const EncoderView& view : out.views) {
    require(view.width == out.plan.view_width && view.height == out.plan.view_height, "view size");
    for (const float value : view.values) require(std::abs(value) <= most, "normalised values");
    const std::int64_t cell = policy.patch * policy.merge;
    if (view.width % cell != 0 || view.height % cell != 0) continue;  // the encoder leaves a margin
    require(patch_rows(policy, view, 2).size() == view.values.size() * 2, "patch rows");
  }
}

}  // namespace tessera::fuzz
