// A file that is too long to be held in memory and must be there whole or not at all: written piece
// by piece under a temporary name in the same folder, which it leaves in the end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

#include "engine/core/publish.h"

namespace tessera {

class AtomicFile {
 public:
  // Creates the temporary. `needed`: bytes that will be written, as far as known, for messages.
  // This and what follows: Error kStorage, E_IO_WRITE, naming path, free and needed bytes.
  explicit AtomicFile(std::filesystem::path path, std::uint64_t needed = 0);
  // Removes what was not published.
  ~AtomicFile();
  AtomicFile(AtomicFile&&) = delete;
  AtomicFile& operator=(AtomicFile&&) = delete;

  void append(std::span<const std::byte> data);
  std::uint64_t size() const { return size_; }
  // Syncs, renames, syncs the folder (no syncs if they are off). kNew never replaces: false if the
  // name is taken. The last call.
  bool publish(Publish publish = Publish::kReplace, Sync sync = Sync::kOn);

 private:
  struct State;
  [[noreturn]] void fail(const char* step) const;

  std::filesystem::path path_;
  std::uint64_t needed_, size_ = 0;
  std::unique_ptr<State> state_;
};

}  // namespace tessera
