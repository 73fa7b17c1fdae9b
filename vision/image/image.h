// An image in memory: rows from the top, 8-bit RGB.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/core/error.h"
#include "engine/core/index.h"

namespace tessera {

struct Image {
  std::int64_t width = 0;         // pixels
  std::int64_t height = 0;        // pixels
  std::vector<std::uint8_t> rgb;  // [height, width, 3]

  Image() = default;
  Image(std::int64_t w, std::int64_t h) : width(w), height(h), rgb(to_size(w * h * 3)) {}
  Image(std::int64_t w, std::int64_t h, std::vector<std::uint8_t> pixels)
      : width(w), height(h), rgb(std::move(pixels)) {
    expects(w > 0 && h > 0 && rgb.size() == to_size(w * h * 3),
            "an image holds width x height x 3 bytes");
  }
  const std::uint8_t* at(std::int64_t x, std::int64_t y) const {
    return rgb.data() + (y * width + x) * 3;
  }
  std::uint8_t* at(std::int64_t x, std::int64_t y) { return rgb.data() + (y * width + x) * 3; }
};

// Images next to each other on a grid of `columns`, `gap` white pixels between and around. Smaller
// images are centred in cells of the largest size. Used for sample sheets.
Image contact_sheet(const std::vector<Image>& images, std::int64_t columns, std::int64_t gap);

}  // namespace tessera
