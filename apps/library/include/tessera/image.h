// An image in memory: rows from the top, 8-bit RGB.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace tessera_v0 {

struct [[gnu::visibility("default")]] Image {
  std::int64_t width = 0, height = 0;  // pixels
  std::vector<std::uint8_t> rgb = {};  // [height, width, 3]

  // Writes a PNG file: as a whole or not at all, over an older one. Error kUsage (E_IMAGE_SIZE)
  // when rgb does not hold width x height x 3 bytes, kStorage when the file cannot be written.
  void save_png(const std::filesystem::path& path) const;
  // The same bytes. Error kUsage.
  std::string png() const;
};

}  // namespace tessera_v0
