// A file that is written at any place and has no name of its own until it is whole: for formats
// whose head is known last.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "engine/core/io_layer.h"
#include "engine/core/publish.h"

namespace tessera {

class DraftFile {
 public:
  // Makes a temporary next to `path`. Every failure is Error kStorage; after one nothing is left.
  explicit DraftFile(const std::filesystem::path& path);
  ~DraftFile();  // removes what was not published
  DraftFile(const DraftFile&) = delete;
  DraftFile& operator=(const DraftFile&) = delete;

  void write(std::uint64_t offset, std::span<const std::byte> data);
  std::uint64_t size() const { return size_; }
  // Syncs, renames, syncs the folder, as publish_file(). False if kNew and the name is taken.
  bool publish(Publish publish, Sync sync = Sync::kOn);

 private:
  [[noreturn]] void fail(const char* step, std::uint64_t needed = 0);

  std::filesystem::path path_, temporary_;
  io_layer::FileHandle file_;
  std::uint64_t at_ = 0, size_ = 0;
  bool there_ = false;
};

}  // namespace tessera
