// Which image codes look alike: unit code vectors and, for every code, the others by distance.
// A plain table; the visual tokenizer makes it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/core/index.h"

namespace tessera {

class CodeNeighbours {
 public:
  // codebook [codes, width], any length but zero; rows are scaled to unit length, as quantisers of
  // this kind compare them. Keeps the `most` nearest of each code, ties by id.
  CodeNeighbours(std::span<const float> codebook, std::int64_t codes, std::int64_t most);

  std::int64_t codes() const { return codes_; }
  std::int64_t width() const { return width_; }
  std::int64_t most() const { return most_; }
  // [width] of unit length.
  std::span<const float> vector(std::int32_t code) const {
    return {vectors_.data() + code * width_, to_size(width_)};
  }
  // Of all codes, [codes, width], and the nearest of all codes, [codes, most].
  std::span<const float> vectors() const { return vectors_; }
  std::span<const std::int32_t> table() const { return nearest_; }
  // The nearest codes but itself, nearest first: min(count, most()) of them.
  std::span<const std::int32_t> nearest(std::int32_t code, std::int64_t count) const;
  // Squared distance of two unit vectors, 0 … 4.
  double distance(std::int32_t a, std::int32_t b) const;

 private:
  std::int64_t codes_, width_, most_;
  std::vector<float> vectors_;         // [codes, width]
  std::vector<std::int32_t> nearest_;  // [codes, most]
};

}  // namespace tessera
