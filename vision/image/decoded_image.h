// A stranger's image as it was decoded: 8-bit RGB or RGBA (not premultiplied), upright, with what
// the reader has to say about it. Families see it on their own background colour.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/core/index.h"
#include "engine/spec/preprocess_policy.h"
#include "vision/image/image.h"

namespace tessera {

// What an image file may ask for. Checked before anything is allocated.
struct ImageLimits {
  std::uint64_t file_bytes = std::uint64_t{256} << 20;
  std::uint64_t side = 16384;  // pixels
  std::uint64_t pixels = std::uint64_t{64} << 20;
};

struct DecodedImage {
  std::int64_t width = 0;            // pixels
  std::int64_t height = 0;           // pixels
  std::int64_t channels = 3;         // 3: RGB, 4: RGBA
  std::vector<std::uint8_t> pixels;  // [height, width, channels]
  std::string format;                // "PNG", "JPEG", "WebP", "GIF", "BMP"
  std::vector<std::string> notes;    // what was left out or replaced, one short line each

  DecodedImage() = default;
  DecodedImage(std::int64_t w, std::int64_t h, std::int64_t c, const char* name)
      : width(w), height(h), channels(c), pixels(to_size(w * h * c)), format(name) {
    expects(w > 0 && h > 0 && (c == 3 || c == 4), "an image has pixels of 3 or 4 bytes");
  }
  std::uint8_t* at(std::int64_t x, std::int64_t y) {
    return pixels.data() + (y * width + x) * channels;
  }
  const std::uint8_t* at(std::int64_t x, std::int64_t y) const {
    return pixels.data() + (y * width + x) * channels;
  }
};


// The image over one colour: round((alpha * pixel + (255 - alpha) * colour) / 255), as Pillow's
// alpha_composite over an opaque background.
Image on_background(const DecodedImage& image, Rgb colour);

}  // namespace tessera
