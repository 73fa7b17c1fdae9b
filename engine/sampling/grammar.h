// Which tokens of an image's or a video's stream are image codes and which are fixed by their
// place. A video is several grids of codes, one after the other. Some families write a token after
// every row of codes, one after every grid, one after the image, one after everything; a plain
// grid of codes is the same without any.
//
// Ids are local: image codes first, 0 … codes-1, as the sliced head gives logits for them, then
// the control ids that the family has. A control id stands at its places and nowhere else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/core/index.h"

namespace tessera {

struct VocabularyGrammar {
  std::size_t codes = 1;
  std::size_t rows = 1, columns = 1;  // of a grid of codes
  bool row_end = false;
  bool image_end = false;
  std::size_t grids = 1;  // of a video; an image is one
  bool grid_end = false;
  bool stream_end = false;  // after the image end

  // One row of `tokens` codes.
  static VocabularyGrammar line(std::size_t codes, std::size_t tokens) {
    return {.codes = codes, .rows = 1, .columns = tokens};
  }

  bool operator==(const VocabularyGrammar&) const = default;

  std::int32_t row_end_id() const { return narrow<std::int32_t>(codes); }
  std::int32_t image_end_id() const { return narrow<std::int32_t>(codes + (row_end ? 1 : 0)); }
  std::int32_t grid_end_id() const { return image_end_id() + (image_end ? 1 : 0); }
  std::int32_t stream_end_id() const { return grid_end_id() + (grid_end ? 1 : 0); }
  std::size_t controls() const { return to_size(stream_end_id()) - codes + (stream_end ? 1u : 0u); }
  std::size_t vocabulary() const { return codes + controls(); }
  // Tokens from a code to the one below it.
  std::size_t stride() const { return columns + (row_end ? 1 : 0); }
  // Codes of one grid.
  std::size_t cells() const { return rows * columns; }
  // Tokens from a code to the one at its place in the next grid.
  std::size_t grid_stride() const { return rows * stride() + (grid_end ? 1 : 0); }
  // Tokens of the whole stream.
  std::size_t length() const {
    return grids * grid_stride() + (image_end ? 1 : 0) + (stream_end ? 1 : 0);
  }

  // The one id that may stand at a position; none where codes stand.
  std::optional<std::int32_t> forced(std::size_t position) const {
    const std::size_t ends = grids * grid_stride();
    if (image_end && position == ends) return image_end_id();
    if (stream_end && position == ends + (image_end ? 1 : 0)) return stream_end_id();
    const std::size_t place = in_grid(position);
    if (grid_end && place == rows * stride()) return grid_end_id();
    if (row_end && (place + 1) % stride() == 0) return row_end_id();
    return std::nullopt;
  }
  // The place of a code, grid by grid and row by row; none at a control id.
  std::optional<std::size_t> cell(std::size_t position) const {
    if (forced(position)) return std::nullopt;
    const std::size_t place = in_grid(position);
    return (position - place) / grid_stride() * cells() + place / stride() * columns +
           place % stride();
  }
  // Of a code within its row.
  std::size_t column(std::size_t position) const { return in_grid(position) % stride(); }
  // The position of the code at the same place one grid earlier, for a code.
  std::optional<std::size_t> earlier(std::size_t position) const;
  // Positions of the codes one row above and to the left within the row, for a code; both in its
  // grid.
  std::optional<std::size_t> above(std::size_t position) const;
  std::optional<std::size_t> left(std::size_t position) const;
  // The position of the last code before `position`, which is not the first one.
  std::size_t code_before(std::size_t position) const;

  // How many of the first `tokens` tokens are codes.
  std::size_t codes_among(std::size_t tokens) const;
  // The codes of a stream or of its first tokens, row by row.
  std::vector<std::int32_t> image_codes(std::span<const std::int32_t> tokens) const;
  // Tokens with which that many whole grids stand, their grid ends included.
  std::size_t tokens_of(std::size_t whole_grids) const { return whole_grids * grid_stride(); }
  // The stream's first tokens out of the codes of whole grids.
  std::vector<std::int32_t> stream_of(std::span<const std::int32_t> whole_grids) const;

 private:
  std::size_t in_grid(std::size_t position) const {
    return grids > 1 ? position % grid_stride() : position;
  }
};

}  // namespace tessera
