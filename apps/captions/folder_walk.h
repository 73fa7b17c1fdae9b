// Images, and videos if asked for, below a folder, in natural order, depth first, one listing a
// level in memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "engine/core/error.h"

namespace tessera {

struct WalkStep {
  std::filesystem::path path;        // root included
  std::optional<ErrorInfo> failure;  // a folder that could not be listed
};

class FolderWalk {
 public:
  FolderWalk(std::filesystem::path root, bool recursive, bool videos = false);
  std::optional<WalkStep> next();
  std::uint64_t links_skipped() const { return links_skipped_; }

 private:
  struct Level {
    std::vector<std::filesystem::path> names;
    std::size_t at = 0;
  };
  std::optional<WalkStep> enter(const std::filesystem::path& folder);

  std::filesystem::path root_;
  bool recursive_, videos_, started_ = false;
  std::vector<Level> levels_;
  std::uint64_t links_skipped_ = 0;
};

}  // namespace tessera
