#include "engine/core/draft_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "engine/core/index.h"

namespace tessera {

using namespace io_layer;

DraftFile::DraftFile(const std::filesystem::path& path)
    : path_(path),
      temporary_(temporary_next_to(path)),
      file_(layer_open(temporary_, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0666)) {
  if (!file_) fail("open");
  there_ = true;
}

DraftFile::~DraftFile() {
  // The plain call is the second try, past the watcher: no rubbish stays.
  if (there_ && layer_unlink(temporary_) != 0) ::unlink(temporary_.c_str());
}

void DraftFile::fail(const char* step, std::uint64_t needed) {
  fail_storage(path_, step, errno, needed);
}

void DraftFile::write(std::uint64_t offset, std::span<const std::byte> data) {
  if (offset != at_ && ::lseek(file_.get(), narrow<off_t>(offset), SEEK_SET) < 0) {
    fail("seek");
  }
  if (!write_all(file_.get(), data)) fail("write", data.size());
  at_ = offset + data.size();
  size_ = std::max(size_, at_);
}

bool DraftFile::publish(Publish publish, Sync sync) {
  if (sync == Sync::kOn && layer_sync(file_.get()) != 0) fail("sync");
  if (file_.close() != 0) fail("close");
  const bool replace = publish == Publish::kReplace;
  if ((replace ? layer_rename : layer_rename_new)(temporary_, path_) != 0) {
    if (!replace && errno == EEXIST) return false;
    fail("rename");
  }
  there_ = false;
  if (sync == Sync::kOn && !sync_folder(parent_or_dot(path_))) fail("sync of the folder");
  return true;
}

}  // namespace tessera
