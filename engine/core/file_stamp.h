// When and how large a file is, to notice that it changed without reading it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace tessera {

struct FileStamp {
  std::int64_t mtime_ns = 0;  // since 1970
  std::uint64_t bytes = 0;
  bool operator==(const FileStamp&) const = default;
};

// None where there is nothing, or nothing that may be asked. Of a folder too: its time changes with
// its names.
std::optional<FileStamp> file_stamp(const std::filesystem::path& path);

}  // namespace tessera
