// Streamed input and output. Commit order of whoever writes: append, sync, and only then whatever
// tells a reader that the bytes are there.
#include "engine/core/file_stream.h"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <span>

#include "engine/core/index.h"
#include "engine/core/io.h"

namespace tessera {

namespace fs = std::filesystem;
using namespace io_layer;

namespace {

[[noreturn]] void fail_read(const fs::path& path, ErrorKind kind, std::uint64_t at) {
  throw Error({.kind = kind,
               .code = "E_IO_READ",
               .file = path.string(),
               .where = "byte " + std::to_string(at),
               .expected = "readable bytes",
               .found = errno_text(errno)});
}

// Reads until `size` bytes are there or the file ends; short reads are no end.
std::size_t read_fully(int fd, char* data, std::size_t size, const fs::path& path, ErrorKind kind,
                       std::uint64_t at) {
  std::size_t done = 0;
  while (done < size) {
    const ssize_t got = layer_read(fd, data + done, size - done);
    if (got < 0) fail_read(path, kind, at + done);
    if (got == 0) break;
    done += to_size(got);
  }
  return done;
}

}  // namespace

InputFile::InputFile(const fs::path& path, ErrorKind kind)
    : path_(path),
      kind_(kind),
      file_(open_regular(path, kind, info_)),
      size_(narrow<std::uint64_t>(info_.st_size)) {}

std::size_t InputFile::read(char* data, std::size_t size) {
  const std::size_t got = read_fully(file_.get(), data, size, path_, kind_, at_);
  at_ += got;
  return got;
}

void InputFile::seek(std::uint64_t offset) {
  expects(offset <= size_, "a place in the file");
  if (::lseek(file_.get(), narrow<off_t>(offset), SEEK_SET) < 0) {
    fail_read(path_, kind_, offset);
  }
  at_ = offset;
}

void InputFile::check_unchanged() const {
  struct stat now {};
  if (layer_fstat(file_.get(), now) != 0) fail_read(path_, kind_, at_);
  const bool same = now.st_size == info_.st_size && now.st_mtim.tv_sec == info_.st_mtim.tv_sec &&
                    now.st_mtim.tv_nsec == info_.st_mtim.tv_nsec;
  if (same) return;
  throw Error({.kind = kind_,
               .code = "E_IO_CHANGED",
               .file = path_.string(),
               .expected = std::to_string(info_.st_size) + " bytes, unchanged while they are read",
               .found = std::to_string(now.st_size) + " bytes, changed meanwhile"});
}

AppendFile::AppendFile(const fs::path& path, Lock lock)
    : path_(path),
      file_(layer_open(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK, 0666)) {
  struct stat info {};
  if (!file_) fail("open");
  if (layer_fstat(file_.get(), info) != 0) fail("stat");
  if (!S_ISREG(info.st_mode)) {
    errno = S_ISDIR(info.st_mode) ? EISDIR : ENODEV;
    fail("open");
  }
  size_ = narrow<std::uint64_t>(info.st_size);
  if (lock == Lock::kExclusive && ::flock(file_.get(), LOCK_EX | LOCK_NB) != 0) {
    throw Error({.kind = ErrorKind::kStorage,
                 .code = "E_IO_LOCKED",
                 .file = path.string(),
                 .expected = "a file that no other run is writing",
                 .found = errno_text(errno),
                 .hint = "wait for the other run or choose another output"});
  }
  if (lock == Lock::kExclusive) check_name(info);
}

// The lock is on the file: it says nothing once the name has gone to another one.
void AppendFile::check_name(const struct stat& opened) {
  struct stat named {};
  const int looked = layer_stat(path_, named);
  if (looked != 0 && errno != ENOENT) fail("stat");
  if (looked == 0 && named.st_ino == opened.st_ino && named.st_dev == opened.st_dev) return;
  throw Error({.kind = ErrorKind::kStorage,
               .code = "E_IO_LOCKED",
               .file = path_.string(),
               .expected = "a file that no other run is writing",
               .found = "one that was replaced just now",
               .hint = "try again"});
}

void AppendFile::fail(const char* step, std::uint64_t needed) {
  broken_ = true;
  fail_storage(path_, step, errno, needed);
}

void AppendFile::append(std::string_view data) {
  expects(!broken_, "no use after a failure");
  if (!write_all(file_.get(), std::as_bytes(std::span(data.data(), data.size())))) {
    fail("write", data.size());
  }
  size_ += data.size();
}

void AppendFile::cut(std::uint64_t size) {
  expects(!broken_ && size <= size_, "cut back, not forward");
  if (size == size_) return;
  if (layer_truncate(file_.get(), size) != 0) fail("cut");
  size_ = size;
}

void AppendFile::sync() {
  expects(!broken_, "no use after a failure");
  if (layer_sync(file_.get()) != 0) fail("sync");
  if (name_synced_) return;
  if (!sync_folder(parent_or_dot(path_))) fail("sync of the folder");
  name_synced_ = true;
}

FileType file_type(const fs::path& path) {
  struct stat info {};
  const int got = through_layer(IoOp::kStat, [&](bool) { return ::lstat(path.c_str(), &info); });
  if (got != 0 && (errno == ENOENT || errno == ENOTDIR)) return FileType::kMissing;
  if (got != 0) {
    throw Error({.kind = ErrorKind::kGeneral,
                 .code = "E_IO_STAT",
                 .file = path.string(),
                 .expected = "a name that can be looked up",
                 .found = errno_text(errno)});
  }
  if (S_ISREG(info.st_mode)) return FileType::kFile;
  if (S_ISDIR(info.st_mode)) return FileType::kFolder;
  return S_ISLNK(info.st_mode) ? FileType::kLink : FileType::kOther;
}

std::string read_file_no_link(const fs::path& path, std::size_t max_bytes) {
  struct stat info {};
  const FileHandle file = open_regular(path, ErrorKind::kGeneral, info, O_NOFOLLOW);
  const auto size = narrow<std::uint64_t>(info.st_size);
  if (size > max_bytes) {
    throw Error({.kind = ErrorKind::kGeneral,
                 .code = "E_IO_SIZE",
                 .file = path.string(),
                 .expected = "at most " + std::to_string(max_bytes) + " bytes",
                 .found = std::to_string(size)});
  }
  std::string text(size, '\0');
  text.resize(read_fully(file.get(), text.data(), text.size(), path, ErrorKind::kGeneral, 0));
  return text;
}

void rename_durable(const fs::path& from, const fs::path& to) {
  if (layer_rename(from, to) != 0) fail_storage(to, "rename", errno, 0);
  if (!sync_folder(parent_or_dot(to))) fail_storage(to, "sync of the folder", errno, 0);
}

void remove_durable(const fs::path& path) {
  if (layer_unlink(path) != 0 && errno != ENOENT) fail_storage(path, "remove", errno, 0);
  if (!sync_folder(parent_or_dot(path))) fail_storage(path, "sync of the folder", errno, 0);
}

}  // namespace tessera
