// The system calls of the program's file access, each after the watcher.
#include "engine/core/io_layer.h"

#include <fcntl.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "engine/core/index.h"

namespace tessera::io_layer {

namespace fs = std::filesystem;

namespace {

// A call that changes the disk, shown to the watcher. `made` fills in what only the result tells.
template <typename Call, typename Made>
auto watched(IoChange change, Call call, Made made) {
  IoWatcher* watcher = installed_watcher().load(std::memory_order_acquire);
  if (watcher != nullptr) watcher->before(change);
  const auto result = call();
  if (watcher != nullptr && result != -1) {
    const int kept = errno;
    made(change, result);
    watcher->after(change);
    errno = kept;
  }
  return result;
}
constexpr auto kNothingMade = [](IoChange&, auto) {};

}  // namespace

int layer_open(const fs::path& path, int flags, mode_t mode) {
  return watched(
      {.op = IoOp::kOpen, .path = &path},
      [&] {
        return through_layer(IoOp::kOpen,
                             [&](bool) { return ::open(path.c_str(), flags | O_CLOEXEC, mode); });
      },
      [](IoChange& change, int fd) { change.fd = fd; });
}

ssize_t layer_read(int fd, char* data, std::size_t size) {
  return through_layer(IoOp::kRead, [&](bool cut) {
    return ::read(fd, data, cut ? std::max<std::size_t>(size / 2, 1) : size);
  });
}

ssize_t layer_write(int fd, const std::byte* data, std::size_t size) {
  return watched(
      {.op = IoOp::kWrite, .fd = fd, .data = {data, size}},
      [&] {
        return through_layer(IoOp::kWrite, [&](bool cut) {
          return ::write(fd, data, cut ? std::max<std::size_t>(size / 2, 1) : size);
        });
      },
      [](IoChange& change, ssize_t written) { change.data = change.data.first(to_size(written)); });
}

int layer_truncate(int fd, std::uint64_t size) {
  const auto length = narrow<off_t>(size);
  return watched(
      {.op = IoOp::kWrite, .fd = fd, .cut_to = length},
      [&] { return through_layer(IoOp::kWrite, [&](bool) { return ::ftruncate(fd, length); }); },
      kNothingMade);
}

int layer_sync(int fd) {
  return watched(
      {.op = IoOp::kSync, .fd = fd},
      [&] { return through_layer(IoOp::kSync, [&](bool) { return ::fsync(fd); }); }, kNothingMade);
}

int layer_rename(const fs::path& from, const fs::path& to) {
  return watched(
      {.op = IoOp::kRename, .path = &from, .to = &to},
      [&] {
        return through_layer(IoOp::kRename,
                             [&](bool) { return std::rename(from.c_str(), to.c_str()); });
      },
      kNothingMade);
}

int layer_rename_new(const fs::path& from, const fs::path& to) {
  const auto rename_or_link = [&](bool) {
    const int done = ::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE);
    if (done == 0 || (errno != EINVAL && errno != ENOSYS)) return done;
    // File systems without the flag: a link is never made over a name either.
    if (::link(from.c_str(), to.c_str()) != 0) return -1;
    return ::unlink(from.c_str());
  };
  return watched(
      {.op = IoOp::kRename, .path = &from, .to = &to},
      [&] { return through_layer(IoOp::kRename, rename_or_link); }, kNothingMade);
}

int layer_unlink(const fs::path& path) {
  return watched(
      {.op = IoOp::kUnlink, .path = &path},
      [&] { return through_layer(IoOp::kUnlink, [&](bool) { return ::unlink(path.c_str()); }); },
      kNothingMade);
}

int layer_mkdir(const fs::path& path) {
  return watched(
      {.op = IoOp::kMkdir, .path = &path},
      [&] {
        return through_layer(IoOp::kMkdir, [&](bool) { return ::mkdir(path.c_str(), 0777); });
      },
      kNothingMade);
}

int layer_fstat(int fd, struct stat& out) {
  return through_layer(IoOp::kStat, [&](bool) { return ::fstat(fd, &out); });
}

int layer_stat(const fs::path& path, struct stat& out) {
  return through_layer(IoOp::kStat, [&](bool) { return ::stat(path.c_str(), &out); });
}

bool write_all(int fd, std::span<const std::byte> data) {
  while (!data.empty()) {
    const ssize_t written = layer_write(fd, data.data(), data.size());
    if (written < 0) return false;
    if (written == 0) {
      errno = ENOSPC;
      return false;
    }
    data = data.subspan(to_size(written));
  }
  return true;
}

bool sync_folder(const fs::path& folder) {
  FileHandle handle(layer_open(folder, O_RDONLY | O_DIRECTORY));
  if (!handle) return false;
  return layer_sync(handle.get()) == 0 || errno == EINVAL;
}

fs::path parent_or_dot(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

std::string errno_text(int error) {
  const char* text = strerrordesc_np(error);
  return text != nullptr ? text : "error " + std::to_string(error);
}

std::string type_name(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

FileHandle open_regular(const fs::path& path, ErrorKind kind, struct stat& info, int more_flags) {
  FileHandle file(layer_open(path, O_RDONLY | O_NONBLOCK | more_flags));
  if (!file) fail_open(path, kind, errno_text(errno));
  if (layer_fstat(file.get(), info) != 0) fail_open(path, kind, errno_text(errno));
  if (!S_ISREG(info.st_mode)) fail_open(path, kind, type_name(info.st_mode));
  return file;
}

void fail_open(const fs::path& path, ErrorKind kind, const std::string& found) {
  throw Error({.kind = kind,
               .code = "E_IO_OPEN",
               .file = path.string(),
               .expected = "a readable file",
               .found = found});
}

namespace {

std::string free_space(const fs::path& folder) {
  struct statvfs info {};
  if (::statvfs(folder.empty() ? "." : folder.c_str(), &info) != 0) return "unknown";
  return std::to_string(std::uint64_t{info.f_bavail} * info.f_frsize);
}

}  // namespace

void fail_storage(const fs::path& path, const char* step, int error, std::uint64_t needed) {
  // The place and not the disk: another folder may do.
  if (error == EACCES || error == EPERM || error == ENOENT || error == ENOTDIR ||
      error == ENAMETOOLONG || error == EISDIR) {
    throw Error({.kind = ErrorKind::kStorage,
                 .code = "E_IO_PLACE",
                 .file = path.string(),
                 .where = step,
                 .expected = "a place that can be written",
                 .found = errno_text(error),
                 .hint = "choose another output folder"});
  }
  throw Error({.kind = ErrorKind::kStorage,
               .code = "E_IO_WRITE",
               .file = path.string(),
               .where = step,
               .expected = "room to write " + std::to_string(needed) + " bytes",
               .found = errno_text(error) + ", " + free_space(path.parent_path()) + " bytes free",
               .hint = "free some space or choose another output folder"});
}

}  // namespace tessera::io_layer
