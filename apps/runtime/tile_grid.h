// How a preprocessed image's tiles lie on it, as pruners read it: the plan's geometry, in tokens
// of the tiles.
#pragma once

#include "engine/core/index.h"
#include "vision/image/preprocess.h"
#include "vision/pruning/visual_block.h"

namespace tessera {

// Tile ids follow the order of the views. A map that was shrunk (LLaVA-OneVision beyond its budget)
// has no tokens of tiles any more, so such a plan is a programmer's error.
inline TileGrid tile_grid_of(const PreprocessPlan& plan) {
  expects(plan.packed_rows == plan.map_rows && plan.packed_cols == plan.map_cols,
          "the map of the tiles as the encoder gave it");
  const auto small = [](std::int64_t value) { return narrow<std::int32_t>(value); };
  const bool mapped = plan.base == BaseView::kFirst;  // padding is cut from the map
  return {.rows = small(plan.tiles.rows),
          .columns = small(plan.tiles.cols),
          .first_tile = mapped ? 1 : 0,
          .base_tile = mapped ? 0 : small(plan.views - 1),
          .side_rows = small(plan.view_rows),
          .side_columns = small(plan.view_cols),
          .image_rows = small(mapped ? plan.map_rows : plan.tiles.rows * plan.view_rows),
          .image_columns = small(mapped ? plan.map_cols : plan.tiles.cols * plan.view_cols),
          .pad_top = small(plan.map_top),
          .pad_left = small(plan.map_left)};
}

}  // namespace tessera
