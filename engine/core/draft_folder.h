// Files that get their names together when all are whole: written into a folder that has no name
// of its own until then.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "engine/core/publish.h"

namespace tessera {

class DraftFolder {
 public:
  // Makes a temporary folder next to `path`, whose parent is there. Errors of all functions:
  // kStorage.
  explicit DraftFolder(const std::filesystem::path& path);
  ~DraftFolder();  // removes what was not published
  DraftFolder(const DraftFolder&) = delete;
  DraftFolder& operator=(const DraftFolder&) = delete;

  // A whole file of a new name. After an error it is not there, the others are.
  void write(const std::string& name, std::string_view data);
  std::size_t files() const { return names_.size(); }

  // The folder gets the name `path`, all files at once. False if something has that name.
  bool publish_as(const std::filesystem::path& path, Sync sync = Sync::kOn);
  // The files go into a folder that is there, one rename each, in the order they were written; all
  // are whole and synced before the first has its name. kNew: false if a name is taken, and then,
  // as after an error, the names that were given are taken back. kReplace: an error leaves the
  // files that were moved before it.
  bool publish_into(const std::filesystem::path& folder, Publish publish, Sync sync = Sync::kOn);

 private:
  void sync_files();
  void take_back(const std::filesystem::path& folder, std::size_t count) noexcept;

  std::filesystem::path temporary_;
  std::vector<std::string> names_;
};

}  // namespace tessera
