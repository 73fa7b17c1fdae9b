#include "apps/runtime/visual_layout.h"

#include <set>
#include <tuple>

#include "apps/runtime/tile_grid.h"
#include "engine/core/index.h"

namespace tessera {

namespace {

std::int32_t small(std::int64_t value) { return narrow<std::int32_t>(value); }

VisualToken newline() {
  VisualToken out;
  out.kind = TokenKind::kNewline;
  return out;
}

VisualToken patch(std::int64_t tile, std::int64_t row, std::int64_t column) {
  VisualToken token;
  token.tile = small(tile);
  token.row = small(row);
  token.column = small(column);
  return token;
}

void append_view(VisualBlock& block, const PreprocessPlan& plan, std::int64_t view) {
  for (std::int64_t row = 0; row < plan.view_rows; ++row) {
    for (std::int64_t column = 0; column < plan.view_cols; ++column) {
      block.tokens.push_back(patch(view, row, column));
    }
    if (plan.row_newlines) block.tokens.push_back(newline());
  }
}

// Rows of the tiles' joint map, each with a newline after it.
void append_map(VisualLayout& layout, const PreprocessPlan& plan) {
  VisualBlock& block = layout.block;
  layout.resampled = plan.packed_rows != plan.map_rows || plan.packed_cols != plan.map_cols;
  for (std::int64_t y = 0; y < plan.packed_rows; ++y) {
    for (std::int64_t x = 0; x < plan.packed_cols; ++x) {
      const std::int64_t row = plan.map_top + y, column = plan.map_left + x;
      const std::int64_t tile =
          1 + row / plan.view_rows * plan.tiles.cols + column / plan.view_cols;
      VisualToken token = layout.resampled
                              ? patch(1, y, x)
                              : patch(tile, row % plan.view_rows, column % plan.view_cols);
      token.map_row = small(layout.resampled ? y : row);
      token.map_column = small(layout.resampled ? x : column);
      block.tokens.push_back(token);
    }
    block.tokens.push_back(newline());
  }
}

// Frame by frame, a class token before each if it is a visual token; newlines at the end.
void append_video(VisualLayout& layout, const PreprocessPlan& plan, bool class_tokens) {
  VisualBlock& block = layout.block;
  layout.resampled = plan.packed_rows > 0;
  const std::int64_t rows = layout.resampled ? plan.packed_rows : plan.view_rows;
  const std::int64_t columns = layout.resampled ? plan.packed_cols : plan.view_cols;
  block.grid.side_rows = small(rows);
  block.grid.side_columns = small(columns);
  for (std::int64_t view = 0; view < plan.views; ++view) {
    if (class_tokens) {
      block.tokens.emplace_back().kind = TokenKind::kCls;
      block.tokens.back().tile = block.tokens.back().frame = small(view);
    }
    for (std::int64_t i = 0; i < rows * columns; ++i) {
      block.tokens.push_back(patch(view, i / columns, i % columns));
      block.tokens.back().frame = small(view);
    }
  }
  for (std::int64_t i = 0; i < plan.newlines; ++i) {
    block.tokens.push_back(newline());
    block.tokens.back().frame = small(plan.views - 1);
  }
  const std::int64_t class_count = class_tokens ? plan.views : 0;
  expects(block.count() == plan.tokens + class_count, "the plan counted the same tokens");
}

void append_image(VisualLayout& layout, const PreprocessPlan& plan, bool class_token) {
  VisualBlock& block = layout.block;
  if (plan.base == BaseView::kFirst) {
    append_view(block, plan, 0);
    append_map(layout, plan);
  } else {
    for (std::int64_t view = 0; view < plan.views; ++view) append_view(block, plan, view);
    const std::int64_t at_end = plan.row_newlines ? 0 : plan.newlines;
    for (std::int64_t i = 0; i < at_end; ++i) block.tokens.push_back(newline());
  }
  expects(block.count() == plan.tokens, "the plan counted the same tokens");
  if (plan.base != BaseView::kOnly && !layout.resampled) block.grid = tile_grid_of(plan);
  if (class_token) {
    expects(plan.base == BaseView::kOnly, "class tokens of one view");
    VisualToken token;
    token.kind = TokenKind::kCls;
    token.tile = 0;
    block.tokens.insert(block.tokens.begin(), token);
  }
}

}  // namespace

VisualLayout layout_of(const PreprocessPlan& plan, const LayoutFacts& facts) {
  VisualLayout out;
  VisualBlock& block = out.block;
  block.position_rows = facts.three_axes ? 3 : 1;
  block.grid.side_rows = small(plan.view_rows);
  block.grid.side_columns = small(plan.view_cols);
  if (plan.video) {
    append_video(out, plan, facts.class_token_feature);
  } else {
    append_image(out, plan, facts.class_token_feature);
  }
  for (std::int32_t i = 0; i < small(block.count()); ++i) {
    VisualToken& token = nth(block.tokens, i);
    token.position = facts.three_axes
                         ? std::array<std::int32_t, 3>{token.frame, token.row, token.column}
                         : std::array<std::int32_t, 3>{i, i, i};
    out.offsets.push_back(token.position);
    if (facts.three_axes && plan.video) {
      out.offsets.back()[0] = nth(plan.video->time_ids, token.frame);
    }
  }
  out.encoder = tiles_block(small(plan.views), small(plan.view_rows * facts.merge),
                            small(plan.view_cols * facts.merge), facts.class_token);
  if (facts.merge > 1 || out.resampled) return out;
  std::set<std::tuple<int, int, int>> shown;
  for (const VisualToken& token : block.tokens) shown.insert({token.tile, token.row, token.column});
  for (VisualToken& token : out.encoder.tokens) {
    if (token.kind == TokenKind::kPatch) {
      token.padded = !shown.contains({token.tile, token.row, token.column});
    }
  }
  return out;
}

}  // namespace tessera
