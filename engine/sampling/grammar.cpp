#include "engine/sampling/grammar.h"

#include <algorithm>

#include "engine/core/error.h"

namespace tessera {

std::optional<std::size_t> VocabularyGrammar::above(std::size_t position) const {
  if (in_grid(position) < stride() || forced(position)) return std::nullopt;
  return position - stride();
}

std::optional<std::size_t> VocabularyGrammar::earlier(std::size_t position) const {
  if (grids == 1 || position < grid_stride() || forced(position)) return std::nullopt;
  return position - grid_stride();
}

std::optional<std::size_t> VocabularyGrammar::left(std::size_t position) const {
  if (column(position) == 0 || forced(position)) return std::nullopt;
  return position - 1;
}

std::size_t VocabularyGrammar::code_before(std::size_t position) const {
  expects(position > 0, "a token stands before this one");
  std::size_t out = position - 1;
  while (forced(out)) --out;
  return out;
}

std::size_t VocabularyGrammar::codes_among(std::size_t tokens) const {
  const std::size_t whole = std::min(tokens / grid_stride(), grids);
  if (whole == grids) return whole * cells();
  const std::size_t rest = tokens - whole * grid_stride(), row = rest / stride();
  if (row >= rows) return (whole + 1) * cells();
  return whole * cells() + row * columns + std::min(rest % stride(), columns);
}

std::vector<std::int32_t> VocabularyGrammar::image_codes(
    std::span<const std::int32_t> tokens) const {
  expects(tokens.size() <= length(), "the tokens are of one image");
  std::vector<std::int32_t> out;
  out.reserve(codes_among(tokens.size()));
  for (std::size_t position = 0; position < tokens.size(); ++position) {
    if (!forced(position)) out.push_back(tokens[position]);
  }
  return out;
}

std::vector<std::int32_t> VocabularyGrammar::stream_of(
    std::span<const std::int32_t> whole_grids) const {
  expects(whole_grids.size() % cells() == 0 && whole_grids.size() <= grids * cells(),
          "the codes are of whole grids");
  std::vector<std::int32_t> out(tokens_of(whole_grids.size() / cells()));
  for (std::size_t position = 0; position < out.size(); ++position) {
    const std::optional<std::int32_t> id = forced(position);
    out[position] = id ? *id : whole_grids[*cell(position)];
  }
  return out;
}

}  // namespace tessera
