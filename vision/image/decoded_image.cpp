// Laying a decoded image on a background.
#include "vision/image/decoded_image.h"
#include "engine/core/index.h"

namespace tessera {

namespace {

// round(x / 255) for x in 0..65025, without a division.
std::uint8_t rounded_255th(unsigned x) {
  x += 128;
  return low_bits<std::uint8_t>((x + (x >> 8)) >> 8);
}

}  // namespace

Image on_background(const DecodedImage& image, Rgb colour) {
  if (image.channels == 3) return Image(image.width, image.height, image.pixels);
  Image out(image.width, image.height);
  const std::uint8_t* from = image.pixels.data();
  for (std::size_t i = 0; i < out.rgb.size(); i += 3, from += 4) {
    const unsigned alpha = from[3];
    for (std::size_t c = 0; c < 3; ++c) {
      out.rgb[i + c] = rounded_255th(from[c] * alpha + colour[c] * (255 - alpha));
    }
  }
  return out;
}

}  // namespace tessera
