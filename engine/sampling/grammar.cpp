#include "engine/sampling/grammar.h"

#include <algorithm>

#include "engine/core/error.h"

namespace tessera {

std::optional<std::size_t> VocabularyGrammar::above(std::size_t position) const {
  if (position < stride() || forced(position)) return std::nullopt;
  return position - stride();
}

std::optional<std::size_t> VocabularyGrammar::left(std::size_t position) const {
  if (position % stride() == 0 || forced(position)) return std::nullopt;
  return position - 1;
}

std::size_t VocabularyGrammar::code_before(std::size_t position) const {
  expects(position > 0, "a token stands before this one");
  std::size_t out = position - 1;
  while (forced(out)) --out;
  return out;
}

std::size_t VocabularyGrammar::codes_among(std::size_t tokens) const {
  const std::size_t row = tokens / stride();
  if (row >= rows) return cells();
  return row * columns + std::min(tokens % stride(), columns);
}

std::vector<std::int32_t> VocabularyGrammar::picture_codes(
    std::span<const std::int32_t> tokens) const {
  expects(tokens.size() <= length(), "the tokens are of one picture");
  std::vector<std::int32_t> out;
  out.reserve(codes_among(tokens.size()));
  for (std::size_t position = 0; position < tokens.size(); ++position) {
    if (!forced(position)) out.push_back(tokens[position]);
  }
  return out;
}

}  // namespace tessera
