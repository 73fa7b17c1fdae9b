#include "engine/core/file_stamp.h"

#include "engine/core/index.h"
#include "engine/core/io_layer.h"

namespace tessera {

std::optional<FileStamp> file_stamp(const std::filesystem::path& path) {
  struct stat info {};
  if (io_layer::layer_stat(path, info) != 0) return std::nullopt;
  constexpr std::int64_t kNano = 1'000'000'000;
  return FileStamp{info.st_mtim.tv_sec * kNano + info.st_mtim.tv_nsec,
                   narrow<std::uint64_t>(info.st_size)};
}

}  // namespace tessera
