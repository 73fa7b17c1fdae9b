// Videos for tests of who shows them: drawn frames, each unlike all others, lossless in a file, with
// the times that a test wants.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "video/frame_writer.h"
#include "vision/image/image.h"

namespace tessera {

// A gradient whose colours and bright bar tell the number of the frame.
inline Image film_image(std::int64_t width, std::int64_t height, std::int64_t number) {
  Image out(width, height);
  for (std::int64_t y = 0; y < height; ++y) {
    for (std::int64_t x = 0; x < width; ++x) {
      std::uint8_t* at = out.at(x, y);
      const bool bar = (x + number * 3) % width < width / 8;
      at[0] = static_cast<std::uint8_t>(bar ? 250 : 30 + x * 120 / width);
      at[1] = static_cast<std::uint8_t>(bar ? 200 : 40 + y * 120 / height);
      at[2] = static_cast<std::uint8_t>(number * 5 + 3);
    }
  }
  return out;
}

// FFV1 in Matroska: a frame at each of `ticks`, of 1/100 s; the last stays until `end`. The format
// keeps times in milliseconds, so that these are exact.
inline void write_film(const std::filesystem::path& path, std::int64_t width, std::int64_t height,
                       std::span<const std::int64_t> ticks, std::int64_t end) {
  VideoFormat format;
  format.container = VideoContainer::kMatroska;
  format.codec = VideoCodec::kFfv1;
  format.width = width;
  format.height = height;
  format.tick = {1, 100};
  FrameWriter writer(path, format);
  for (std::size_t i = 0; i < ticks.size(); ++i) {
    writer.put(film_image(width, height, static_cast<std::int64_t>(i)).rgb, ticks[i]);
  }
  writer.finish(end, Publish::kReplace, Sync::kOff);
}

// `frames` of them, `each` ticks apart.
inline void write_film(const std::filesystem::path& path, std::int64_t frames, std::int64_t each,
                       std::int64_t width = 64, std::int64_t height = 48) {
  std::vector<std::int64_t> ticks;
  for (std::int64_t i = 0; i < frames; ++i) ticks.push_back(i * each);
  write_film(path, width, height, ticks, frames * each);
}

}  // namespace tessera
