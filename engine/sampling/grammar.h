// Which tokens of a picture's stream are picture codes and which are fixed by their place. Some
// families write a row-end token behind every row of codes and an image-end token behind the last;
// a plain grid of codes is the same without either.
//
// Ids are local: picture codes first, 0 … codes-1, as the sliced head gives logits for them, then
// the control ids that the family has. A control id stands at its places and nowhere else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace tessera {

struct VocabularyGrammar {
  std::size_t codes = 1;
  std::size_t rows = 1, columns = 1;  // of the grid of codes
  bool row_end = false;
  bool image_end = false;

  // One row of `tokens` codes.
  static VocabularyGrammar line(std::size_t codes, std::size_t tokens) {
    return {.codes = codes, .rows = 1, .columns = tokens};
  }

  bool operator==(const VocabularyGrammar&) const = default;

  std::int32_t row_end_id() const { return static_cast<std::int32_t>(codes); }
  std::int32_t image_end_id() const { return static_cast<std::int32_t>(codes + (row_end ? 1 : 0)); }
  std::size_t controls() const { return (row_end ? 1u : 0u) + (image_end ? 1u : 0u); }
  std::size_t vocabulary() const { return codes + controls(); }
  // Tokens from a code to the one below it.
  std::size_t stride() const { return columns + (row_end ? 1 : 0); }
  std::size_t cells() const { return rows * columns; }
  // Tokens of the whole stream.
  std::size_t length() const { return rows * stride() + (image_end ? 1 : 0); }

  // The one id that may stand at a position; none where codes stand.
  std::optional<std::int32_t> forced(std::size_t position) const {
    if (image_end && position == rows * stride()) return image_end_id();
    if (row_end && (position + 1) % stride() == 0) return row_end_id();
    return std::nullopt;
  }
  // The place of a code in the grid, row by row; none at a control id.
  std::optional<std::size_t> cell(std::size_t position) const {
    if (forced(position)) return std::nullopt;
    return position / stride() * columns + position % stride();
  }
  // Positions of the codes one row above and to the left within the row, for a code.
  std::optional<std::size_t> above(std::size_t position) const;
  std::optional<std::size_t> left(std::size_t position) const;
  // The position of the last code before `position`, which is not the first one.
  std::size_t code_before(std::size_t position) const;

  // How many of the first `tokens` tokens are codes.
  std::size_t codes_among(std::size_t tokens) const;
  // The codes of a stream or of its first tokens, row by row.
  std::vector<std::int32_t> picture_codes(std::span<const std::int32_t> tokens) const;
};

}  // namespace tessera
