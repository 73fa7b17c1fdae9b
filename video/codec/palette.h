// The 256 colours of a frame that has more. Internal to video/codec.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace tessera {

struct GifPalette {
  std::array<std::uint32_t, 256> colours{};  // 0xAARRGGBB, opaque
};

// Colours of a frame and the index of each pixel: rgb [pixels, 3] u8, indices [pixels]. A frame of
// up to 256 colours keeps each of them; others are cut at medians, in 32 steps a channel. Equal
// frames give equal results.
GifPalette quantize(std::span<const std::uint8_t> rgb, std::span<std::uint8_t> indices);

}  // namespace tessera
