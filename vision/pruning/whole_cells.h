// Keeps the best tokens of a list, or the best whole merge cells where the projector will merge
// several patches into one: a cell's score is the mean of its patches.
#pragma once

#include <cstdint>
#include <span>

#include "engine/core/index.h"
#include "vision/pruning/primitives.h"
#include "vision/pruning/visual_block.h"

namespace tessera {

// Tokens of the list that would stay if `tokens` may: a multiple of the cell size.
inline std::int64_t whole_cells(const VisualBlock& block, std::int64_t tokens) {
  return tokens / block.cell_size * block.cell_size;
}

// Marks the best `keep` of `tokens` (ascending; scores[i] belongs to tokens[i]) in `chosen`.
inline void keep_best(const VisualBlock& block, std::span<const TokenIndex> tokens,
                      std::span<const float> scores, std::int64_t keep,
                      std::span<std::uint8_t> chosen, PruneScratch& scratch) {
  const auto cell = to_size(block.cell_size);
  if (cell == 1) {
    mark(tokens, ranked(scores, keep, scratch), chosen);
    return;
  }
  expects(tokens.size() % cell == 0, "whole cells compete");
  const auto means = scratch.take<float>(to_index(tokens.size() / cell));
  for (std::size_t c = 0; c < means.size(); ++c) {
    double sum = 0;
    for (std::size_t i = c * cell; i < (c + 1) * cell; ++i) {
      expects(block[tokens[i]].cell == block[tokens[c * cell]].cell, "a cell lies side by side");
      sum += scores[i];
    }
    means[c] = to_float(sum / to_double(cell));
  }
  for (const TokenIndex place : ranked(means, keep / block.cell_size, scratch)) {
    for (std::size_t i = 0; i < cell; ++i) {
      nth(chosen, tokens[to_size(place) * cell + i]) = 1;
    }
  }
}

}  // namespace tessera
