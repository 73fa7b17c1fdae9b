// Laying a decoded picture on a background.
#include "vision/image/picture.h"

namespace tessera {

namespace {

// round(x / 255) for x in 0..65025, without a division.
std::uint8_t rounded_255th(unsigned x) {
  x += 128;
  return static_cast<std::uint8_t>((x + (x >> 8)) >> 8);
}

}  // namespace

Image on_background(const Picture& picture, Rgb colour) {
  if (picture.channels == 3) return Image(picture.width, picture.height, picture.pixels);
  Image out(picture.width, picture.height);
  const std::uint8_t* from = picture.pixels.data();
  for (std::size_t i = 0; i < out.rgb.size(); i += 3, from += 4) {
    const unsigned alpha = from[3];
    for (std::size_t c = 0; c < 3; ++c) {
      out.rgb[i + c] = rounded_255th(from[c] * alpha + colour[c] * (255 - alpha));
    }
  }
  return out;
}

}  // namespace tessera
