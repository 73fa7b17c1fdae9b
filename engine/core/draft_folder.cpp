#include "engine/core/draft_folder.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <system_error>

#include "engine/core/io_layer.h"

namespace tessera {

using namespace io_layer;

DraftFolder::DraftFolder(const std::filesystem::path& path) {
  const std::filesystem::path temporary = temporary_next_to(path);
  if (layer_mkdir(temporary) != 0) fail_storage(path, "making of a folder", errno, 0);
  temporary_ = temporary;
}

DraftFolder::~DraftFolder() {
  std::error_code ignored;
  if (!temporary_.empty()) std::filesystem::remove_all(temporary_, ignored);
}

void DraftFolder::write(const std::string& name, std::string_view data) {
  const std::filesystem::path path = temporary_ / name;
  FileHandle file(layer_open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0666));
  if (!file) fail_storage(path, "open", errno, data.size());
  const bool written =
      write_all(file.get(), {reinterpret_cast<const std::byte*>(data.data()), data.size()});
  const int why = errno;
  if (written && file.close() == 0) {
    names_.push_back(name);
    return;
  }
  const int error = written ? errno : why;
  ::unlink(path.c_str());
  fail_storage(path, "write", error, data.size());
}

// Each file was closed long ago: opened again, a sync still waits for its bytes.
void DraftFolder::sync_files() {
  for (const std::string& name : names_) {
    const std::filesystem::path path = temporary_ / name;
    const FileHandle file(layer_open(path, O_RDONLY | O_NOFOLLOW));
    if (!file || layer_sync(file.get()) != 0) fail_storage(path, "sync", errno, 0);
  }
  if (!sync_folder(temporary_)) fail_storage(temporary_, "sync of the folder", errno, 0);
}

bool DraftFolder::publish_as(const std::filesystem::path& path, Sync sync) {
  if (sync == Sync::kOn) sync_files();
  if (layer_rename_new(temporary_, path) != 0) {
    if (errno == EEXIST) return false;
    fail_storage(path, "rename", errno, 0);
  }
  temporary_.clear();
  if (sync == Sync::kOn && !sync_folder(parent_or_dot(path))) {
    fail_storage(path, "sync of the folder", errno, 0);
  }
  return true;
}

void DraftFolder::take_back(const std::filesystem::path& folder, std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    ::rename((folder / names_[i]).c_str(), (temporary_ / names_[i]).c_str());
  }
}

bool DraftFolder::publish_into(const std::filesystem::path& folder, Publish publish, Sync sync) {
  if (sync == Sync::kOn) sync_files();
  const bool replace = publish == Publish::kReplace;
  for (std::size_t i = 0; i < names_.size(); ++i) {
    const std::filesystem::path from = temporary_ / names_[i], to = folder / names_[i];
    if ((replace ? layer_rename : layer_rename_new)(from, to) == 0) continue;
    const int error = errno;
    if (!replace) take_back(folder, i);
    if (!replace && error == EEXIST) return false;
    fail_storage(to, "rename", error, 0);
  }
  if (sync == Sync::kOn && !sync_folder(folder)) {
    fail_storage(folder, "sync of the folder", errno, 0);
  }
  return true;
}

}  // namespace tessera
