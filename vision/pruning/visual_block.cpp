// Builders of visual blocks: the token layouts of LLaVA-1.5, LLaVA-NeXT, Idefics3 and Qwen2.5-VL.
#include "vision/pruning/visual_block.h"
#include "engine/core/index.h"

namespace tessera {

namespace {

constexpr std::int32_t kVideoSide = 24;  // patches of a CLIP-L/14-336 tile

VisualToken patch_at(std::int32_t tile, std::int32_t row, std::int32_t column) {
  VisualToken token;
  token.tile = tile;
  token.row = row;
  token.column = column;
  return token;
}

void append_tile(VisualBlock& block, std::int32_t tile, std::int32_t rows, std::int32_t columns) {
  for (std::int32_t row = 0; row < rows; ++row) {
    for (std::int32_t column = 0; column < columns; ++column) {
      block.tokens.push_back(patch_at(tile, row, column));
    }
  }
}

void append_structural(VisualBlock& block, TokenKind kind, std::int32_t tile = -1) {
  VisualToken token;
  token.kind = kind;
  token.tile = tile;
  block.tokens.push_back(token);
}

// One id a token, ascending.
void number_positions(VisualBlock& block, std::int32_t first) {
  for (std::size_t i = 0; i < block.tokens.size(); ++i) {
    block.tokens[i].position[0] = first + narrow<std::int32_t>(i);
  }
}

void append_map_row(VisualBlock& block, std::int32_t y, Padding padding) {
  const TileGrid& grid = block.grid;
  const bool row_shown = y >= grid.pad_top && y < grid.pad_top + grid.image_rows;
  for (std::int32_t x = 0; x < grid.columns * grid.side_columns; ++x) {
    const bool shown = row_shown && x >= grid.pad_left && x < grid.pad_left + grid.image_columns;
    if (!shown && padding == Padding::kDropped) continue;
    const std::int32_t tile =
        grid.first_tile + y / grid.side_rows * grid.columns + x / grid.side_columns;
    VisualToken token = patch_at(tile, y % grid.side_rows, x % grid.side_columns);
    token.map_row = y;
    token.map_column = x;
    token.padded = !shown;
    block.tokens.push_back(token);
  }
  if (row_shown) append_structural(block, TokenKind::kNewline);
}

}  // namespace

VisualBlock grid_block(std::int32_t rows, std::int32_t columns, std::int32_t first_position,
                       bool cls) {
  VisualBlock block = tiles_block(1, rows, columns, cls);
  number_positions(block, first_position);
  return block;
}

VisualBlock tiles_block(std::int32_t tiles, std::int32_t rows, std::int32_t columns, bool cls) {
  expects(tiles >= 0 && rows >= 0 && columns >= 0, "sizes are not negative");
  VisualBlock block;
  for (std::int32_t tile = 0; tile < tiles; ++tile) {
    if (cls) append_structural(block, TokenKind::kCls, tile);
    append_tile(block, tile, rows, columns);
  }
  block.grid.side_rows = rows;
  block.grid.side_columns = columns;
  number_positions(block, 0);
  return block;
}

VisualBlock llava_block(std::int32_t first_position) {
  return grid_block(kVideoSide, kVideoSide, first_position);
}

VisualBlock llava_next_block(const TileGrid& grid, Padding padding, std::int32_t first_position) {
  expects(grid.base_tile >= 0 && grid.rows > 0 && grid.columns > 0, "a base view and tiles");
  VisualBlock block;
  block.grid = grid;
  append_tile(block, grid.base_tile, grid.side_rows, grid.side_columns);
  for (std::int32_t y = 0; y < grid.rows * grid.side_rows; ++y) append_map_row(block, y, padding);
  number_positions(block, first_position);
  return block;
}

VisualBlock idefics3_block(std::int32_t tile_rows, std::int32_t tile_columns, std::int32_t side,
                           std::int32_t first_position) {
  expects(tile_rows >= 0 && tile_columns >= 0 && side > 0, "sizes are not negative");
  VisualBlock block;
  block.grid = {.rows = tile_rows,
                .columns = tile_columns,
                .first_tile = 0,
                .base_tile = tile_rows * tile_columns,
                .side_rows = side,
                .side_columns = side,
                .image_rows = tile_rows * side,
                .image_columns = tile_columns * side};
  for (std::int32_t r = 0; r < tile_rows; ++r) {
    for (std::int32_t c = 0; c < tile_columns; ++c) {
      append_structural(block, TokenKind::kMarker);  // fake_token_around_image
      append_structural(block, TokenKind::kMarker);  // row_r_col_c
      const auto begin = std::ssize(block.tokens);
      append_tile(block, r * tile_columns + c, side, side);
      for (auto i = to_size(begin); i < block.tokens.size(); ++i) {
        block.tokens[i].map_row = r * side + block.tokens[i].row;
        block.tokens[i].map_column = c * side + block.tokens[i].column;
      }
    }
    append_structural(block, TokenKind::kMarker);  // line break of the text
  }
  append_structural(block, TokenKind::kMarker);  // line break
  append_structural(block, TokenKind::kMarker);  // fake_token_around_image
  append_structural(block, TokenKind::kMarker);  // global-img
  append_tile(block, block.grid.base_tile, side, side);
  append_structural(block, TokenKind::kMarker);
  number_positions(block, first_position);
  return block;
}

VisualBlock qwen_block(std::int32_t frames, std::int32_t rows, std::int32_t columns,
                       QwenStage stage, std::int32_t start, std::int32_t time_step) {
  expects(frames >= 0 && rows >= 0 && columns >= 0, "sizes are not negative");
  const std::int32_t side = stage == QwenStage::kPatches ? 2 : 1;
  VisualBlock block;
  block.position_rows = 3;
  block.cell_size = side * side;
  block.grid.side_rows = rows * side;
  block.grid.side_columns = columns * side;
  for (std::int32_t t = 0; t < frames; ++t) {
    for (std::int32_t cell = 0; cell < rows * columns; ++cell) {
      const std::int32_t row = cell / columns, column = cell % columns;
      for (std::int32_t part = 0; part < side * side; ++part) {
        VisualToken token = patch_at(0, row * side + part / side, column * side + part % side);
        token.frame = t;
        token.cell = t * rows * columns + cell;
        token.position = {start + t * time_step, start + row, start + column};
        block.tokens.push_back(token);
      }
    }
  }
  return block;
}

VisualBlock merged_block(const VisualBlock& block) {
  const auto cell = to_size(block.cell_size);
  const std::int32_t side = block.cell_size == 4 ? 2 : 1;
  expects(block.cell_size == side * side, "cells of 1 or 2 x 2 patches");
  expects(block.tokens.size() % cell == 0, "whole cells");
  VisualBlock out;
  out.position_rows = block.position_rows;
  out.grid = block.grid;
  out.grid.side_rows /= side;
  out.grid.side_columns /= side;
  for (std::size_t i = 0; i < block.tokens.size(); i += cell) {
    VisualToken token = block.tokens[i];
    for (std::size_t part = 1; part < cell; ++part) {
      expects(block.tokens[i + part].cell == token.cell, "a cell lies side by side");
    }
    token.row /= side;
    token.column /= side;
    out.tokens.push_back(token);
  }
  return out;
}

}  // namespace tessera
