// All file access of the program. Every call goes through one layer that a watcher stands in front
// of (io_watch.h), so that tests exercise each error branch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/core/bus_guard.h"
#include "engine/core/error.h"

namespace tessera {

// A file mapped read-only. Length is fixed at opening; changed_on_disk() compares inode, size and
// mtime with those seen then, because a cut file shows as zeros, not as an error, in a mapping: the
// kernel clears the rest of its last page, BusGuard the pages after it.
class MappedFile {
 public:
  // Error kModel, E_IO_OPEN, if it cannot be opened, is no regular file, or cannot be mapped.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }
  const std::filesystem::path& path() const { return path_; }
  bool changed_on_disk() const;
  // Tells the kernel these pages are no longer needed (after packing): keeps resident memory flat.
  void release(std::size_t offset, std::size_t length) const;

 private:
  std::filesystem::path path_;
  std::span<const std::byte> bytes_;
  BusGuard guard_;
  std::uint64_t inode_ = 0, size_ = 0;
  std::int64_t mtime_ns_ = 0;
};

// Whole small file. Error kModel/`kind` when missing, unreadable or larger than max_bytes.
std::string read_file(const std::filesystem::path& path, std::size_t max_bytes,
                      ErrorKind kind = ErrorKind::kModel);

// Writes next to the target, fsyncs file and directory, renames: readers see the old file or the
// whole new one. Any failure removes the temporary and throws Error kStorage naming path, free and
// needed bytes.
void write_file_atomic(const std::filesystem::path& path, std::span<const std::byte> data);
void write_file_atomic(const std::filesystem::path& path, std::string_view text);
// The pieces one after the other, without joining them in memory.
void write_file_atomic(const std::filesystem::path& path,
                       std::span<const std::span<const std::byte>> pieces);

// Creates the folder (with parents) and proves that it can be written. Error kStorage.
void ensure_output_folder(const std::filesystem::path& folder);

bool file_exists(const std::filesystem::path& path);  // of any type
bool is_folder(const std::filesystem::path& path);
std::vector<std::filesystem::path> list_folder(const std::filesystem::path& folder);  // sorted

// Seconds on a clock that never steps (CLOCK_MONOTONIC).
double monotonic_seconds();

}  // namespace tessera
