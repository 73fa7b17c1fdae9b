// Videos in memory for tests: drawn frames, a file that is written and read without a disk.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "video/codec/video_reader.h"
#include "video/codec/video_writer.h"

namespace tessera {

class MemoryFile final : public FileBytes, public VideoSink {
 public:
  std::vector<std::uint8_t> bytes;
  std::uint64_t reads = 0;

  std::size_t read(std::uint64_t offset, std::uint8_t* data, std::size_t count) override {
    ++reads;
    if (offset >= bytes.size()) return 0;
    count = std::min<std::size_t>(count, bytes.size() - offset);
    std::memcpy(data, bytes.data() + offset, count);
    return count;
  }
  std::uint64_t size() const override { return bytes.size(); }
  void write(std::uint64_t offset, const std::uint8_t* data, std::size_t count) override {
    bytes.resize(std::max<std::size_t>(bytes.size(), offset + count));
    std::copy_n(data, count, bytes.begin() + static_cast<std::ptrdiff_t>(offset));
  }
};

// A gradient with a bright square that moves to the right, and the number of the frame in it.
inline std::vector<std::uint8_t> drawn_frame(std::int64_t width, std::int64_t height, int number) {
  std::vector<std::uint8_t> rgb(static_cast<std::size_t>(width * height * 3));
  for (std::int64_t y = 0; y < height; ++y) {
    for (std::int64_t x = 0; x < width; ++x) {
      std::uint8_t* at = &rgb[static_cast<std::size_t>((y * width + x) * 3)];
      const bool square = x >= number * 2 && x < number * 2 + 8 && y >= 4 && y < 12;
      at[0] = static_cast<std::uint8_t>(square ? 250 : 40 + x * 100 / width);
      at[1] = static_cast<std::uint8_t>(square ? 220 : 60 + y * 100 / height);
      at[2] = static_cast<std::uint8_t>(square ? 40 : 90 + (number * 7) % 60);
    }
  }
  return rgb;
}

inline MemoryFile written_video(const VideoFormat& format, std::span<const std::int64_t> ticks,
                               std::int64_t end) {
  MemoryFile file;
  VideoWriter writer(file, format);
  for (std::size_t i = 0; i < ticks.size(); ++i) {
    writer.put(drawn_frame(format.width, format.height, static_cast<int>(i)), ticks[i]);
  }
  writer.finish(end);
  return file;
}

}  // namespace tessera
