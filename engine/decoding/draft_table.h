// What usually stands right of one code and below another: one code for each pair of neighbours,
// counted on the images the tokenizer was trained for. An integer table, shipped next to a model.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/core/index.h"

namespace tessera {

struct DraftTable {
  std::int64_t codes = 0;
  std::vector<std::int16_t> left_above;  // [V, V] by left code, then the one above; -1 = never seen
  std::vector<std::int16_t> left;        // [V] where nothing is above or the pair was never seen
  std::vector<std::int16_t> above;       // [V] in the first column

  // A neighbour that is not there is -1; one of them is.
  std::int32_t draft(std::int32_t left_code, std::int32_t above_code) const {
    if (left_code < 0) return nth(above, above_code);
    const auto row = to_size(left_code);
    if (above_code >= 0) {
      const std::int16_t both = left_above[row * to_size(codes) + to_size(above_code)];
      if (both >= 0) return both;
    }
    return left[row];
  }
};

}  // namespace tessera
