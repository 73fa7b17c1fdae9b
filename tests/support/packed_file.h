// Goldens that are kept compressed.
#pragma once

#include <zlib.h>

#include <cstddef>
#include <filesystem>
#include <stdexcept>
#include <string>

namespace tessera {

// The whole of a file that gzip wrote.
inline std::string unpacked_file(const std::filesystem::path& path) {
  const gzFile file = gzopen(path.c_str(), "rb");
  if (file == nullptr) throw std::runtime_error(path.string());
  std::string out;
  char buffer[1 << 16];
  for (int size = 0; (size = gzread(file, buffer, sizeof buffer)) > 0;) {
    out.append(buffer, static_cast<std::size_t>(size));
  }
  gzclose(file);
  return out;
}

}  // namespace tessera
