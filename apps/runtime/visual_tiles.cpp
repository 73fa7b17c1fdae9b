#include "apps/runtime/visual_tiles.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <tuple>

#include "engine/core/index.h"

namespace tessera {

namespace {

std::tuple<int, int, int> place_of(const VisualToken& token) {
  return {token.tile, token.row, token.column};
}

bool on_tile(const VisualToken& token) {
  return token.kind == TokenKind::kPatch && token.tile >= 0 && token.row >= 0 && token.column >= 0;
}

// A tile of the map of tiles covers its part of the image, any other view what it shows.
void lay_out(VisualTile& tile, std::int32_t id, const TileGrid& grid, const ShownPart& part) {
  tile.left = part.left;
  tile.top = part.top;
  tile.width = part.width;
  tile.height = part.height;
  const std::int32_t number = id - grid.first_tile;
  if (id == grid.base_tile || number < 0 || number >= grid.rows * grid.columns) return;
  if (grid.image_rows <= 0 || grid.image_columns <= 0) return;
  const auto rows = to_double(grid.image_rows);
  const auto columns = to_double(grid.image_columns);
  tile.left = (number % grid.columns * grid.side_columns - grid.pad_left) / columns;
  tile.top = (number / grid.columns * grid.side_rows - grid.pad_top) / rows;
  tile.width = grid.side_columns / columns;
  tile.height = grid.side_rows / rows;
}

}  // namespace

ShownPart shown_part(const PreprocessPlan& plan) {
  if (plan.views != 1 || plan.resized_width <= 0 || plan.resized_height <= 0) return {};
  const auto width = to_double(plan.resized_width), height = to_double(plan.resized_height);
  return {.left = -to_double(plan.left) / width,
          .top = -to_double(plan.top) / height,
          .width = to_double(plan.canvas_width) / width,
          .height = to_double(plan.canvas_height) / height};
}

std::vector<VisualTile> visual_tiles(const VisualBlock& whole, const VisualBlock& kept,
                                     std::span<const float> scores, const ShownPart& part) {
  expects(scores.empty() || scores.size() == whole.tokens.size(), "a score for every token");
  std::map<std::int32_t, VisualTile> tiles;
  for (const VisualToken& token : whole.tokens) {
    if (!on_tile(token)) continue;
    VisualTile& tile = tiles[token.tile];
    tile.rows = std::max<std::int64_t>(tile.rows, token.row + 1);
    tile.columns = std::max<std::int64_t>(tile.columns, token.column + 1);
  }
  std::set<std::tuple<int, int, int>> left;
  for (const VisualToken& token : kept.tokens) {
    if (on_tile(token)) left.insert(place_of(token));
  }
  std::vector<VisualTile> out;
  for (auto& [id, tile] : tiles) {
    const auto cells = to_size(tile.rows * tile.columns);
    tile.scores.assign(cells, std::numeric_limits<float>::quiet_NaN());
    tile.kept.assign(cells, 0);
    lay_out(tile, id, whole.grid, part);
  }
  for (std::size_t i = 0; i < whole.tokens.size(); ++i) {
    const VisualToken& token = whole.tokens[i];
    if (!on_tile(token)) continue;
    VisualTile& tile = tiles[token.tile];
    const auto at = to_size(token.row * tile.columns + token.column);
    tile.kept[at] = left.contains(place_of(token)) ? 1 : 0;
    if (!scores.empty()) tile.scores[at] = scores[i];
  }
  for (auto& [id, tile] : tiles) out.push_back(std::move(tile));
  return out;
}

}  // namespace tessera
