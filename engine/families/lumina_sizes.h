// Sizes of Lumina-mGPT's images: sides count cells, each with a token of its own.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "engine/core/json.h"

namespace tessera {

inline constexpr std::int64_t kLuminaSide = 768;   // pixels
inline constexpr std::int64_t kLuminaRatio = 4;    // of the longer side to the shorter one
inline constexpr std::int64_t kLuminaPrompt = 64;  // tokens that any size leaves
inline constexpr std::int64_t kCellCodes = 2;  // along a side of the cells that size tokens count
inline constexpr std::int64_t kSizeTokens = 8800;  // "<reserved08800>" and on, of sides in cells

inline std::string lumina_size_token(std::int64_t cells) {
  const std::string number = std::to_string(kSizeTokens + cells);
  return "<reserved" + std::string(5 - std::min<std::size_t>(5, number.size()), '0') + number + ">";
}

class LuminaSizes {
 public:
  LuminaSizes(const JsonReader& map, std::int64_t factor, std::int64_t max_positions)
      : map_(map), cell_(kCellCodes * factor), positions_(max_positions) {}

  std::int64_t cell() const { return cell_; }
  bool fits(std::int64_t width, std::int64_t height) const {
    if (width < cell_ || height < cell_ || width % cell_ != 0 || height % cell_ != 0) return false;
    if (std::max(width, height) > kLuminaRatio * std::min(width, height)) return false;
    const std::int64_t rows = height / cell_ * kCellCodes, columns = width / cell_ * kCellCodes;
    return rows * (columns + 1) + 1 + kLuminaPrompt <= positions_ &&
           map_.has(lumina_size_token(width / cell_)) && map_.has(lumina_size_token(height / cell_));
  }
  // The largest square up to the usual one; 0 = none.
  std::int64_t square() const {
    std::int64_t side = kLuminaSide / cell_ * cell_;
    while (side > 0 && !fits(side, side)) side -= cell_;
    return side;
  }

 private:
  const JsonReader& map_;
  std::int64_t cell_, positions_;
};

}  // namespace tessera
