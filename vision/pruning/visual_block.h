// What is known of the visual tokens of one image or video before any feature is computed: what each
// token is, where it lies and which position ids it has. Families build it once, pruners only read.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/core/index.h"
#include "vision/pruning/views.h"

namespace tessera {

enum class TokenKind : std::uint8_t { kPatch, kNewline, kCls, kMarker, kTimestamp };
inline constexpr std::size_t kTokenKinds = 5;

struct VisualToken {
  TokenKind kind = TokenKind::kPatch;
  bool padded = false;                         // a patch that shows padding only
  std::int32_t tile = -1;                      // -1: of no tile
  std::int32_t row = -1, column = -1;          // in its tile
  std::int32_t map_row = -1, map_column = -1;  // in the map of all tiles; -1: not on it
  std::int32_t frame = 0;
  std::int32_t cell = -1;                  // tokens that the projector merges share a cell
  std::array<std::int32_t, 3> position{};  // as without pruning; position_rows of them count
  float size = 1;                          // original tokens that were merged into this one
};

// How tiles lie on the image, all in patches. A block without tiles has rows = columns = 0.
struct TileGrid {
  std::int32_t rows = 0, columns = 0;              // of tiles
  std::int32_t first_tile = 0;                     // id of the tile at (0, 0); ids run row-major
  std::int32_t base_tile = -1;                     // the view of the whole image; -1: there is none
  std::int32_t side_rows = 0, side_columns = 0;    // of one tile, the base view too
  std::int32_t image_rows = 0, image_columns = 0;  // of the image on the map of tiles
  std::int32_t pad_top = 0, pad_left = 0;          // padding before the image on that map
};

struct VisualBlock {
  std::vector<VisualToken> tokens;
  int position_rows = 1;  // 1, or 3 for M-RoPE (time, row, column)
  int cell_size = 1;      // tokens of a merge cell; they lie side by side
  TileGrid grid;

  std::int64_t count() const { return std::ssize(tokens); }
  const VisualToken& operator[](TokenIndex i) const {
    expects(i >= 0 && i < count(), "token of the block");
    return nth(tokens, i);
  }
};

// rows x columns patches of one tile, raster order. `cls`: a CLS token before them, as inside a
// CLIP encoder.
VisualBlock grid_block(std::int32_t rows, std::int32_t columns, std::int32_t first_position = 0,
                       bool cls = false);

// `tiles` encoder inputs one after the other, each `rows` x `columns` patches.
VisualBlock tiles_block(std::int32_t tiles, std::int32_t rows, std::int32_t columns,
                        bool cls = false);

// LLaVA-1.5: 24 x 24 patches, positions after the 35 tokens of the Vicuna template.
VisualBlock llava_block(std::int32_t first_position = 35);

enum class Padding : std::uint8_t { kDropped, kFlagged };  // before selection, or left to it
// LLaVA-NeXT "anyres": base view, then the map of tiles row by row, a newline after each row that
// shows the image. Which tiles an image gets and where it lies on them is the preprocessor's
// affair.
VisualBlock llava_next_block(const TileGrid& grid, Padding padding = Padding::kDropped,
                             std::int32_t first_position = 35);

// Idefics3, SmolVLM: tiles with two markers before each and one after each row of tiles; the whole
// image, as a tile, comes last with two markers before and two around it.
VisualBlock idefics3_block(std::int32_t tile_rows, std::int32_t tile_columns, std::int32_t side,
                           std::int32_t first_position = 0);

enum class QwenStage : std::uint8_t { kPatches, kMerged };  // before and after the 2 x 2 merger
// Qwen2-VL, Qwen2.5-VL: `rows` x `columns` merged cells a frame, `frames` temporal steps that are
// `time_step` positions apart; M-RoPE ids (start + t, start + row, start + column).
VisualBlock qwen_block(std::int32_t frames, std::int32_t rows, std::int32_t columns,
                       QwenStage stage, std::int32_t start = 0, std::int32_t time_step = 1);
// What is left of a block after the merger: one token for each cell, with the cell's row and
// column. The tokens of a cell must all be there.
VisualBlock merged_block(const VisualBlock& block);

}  // namespace tessera
