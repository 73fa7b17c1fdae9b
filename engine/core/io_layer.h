// The system calls under engine/core/io.h and file_stream.h. Each asks the installed watcher first
// (io_watch.h). For the .cpp files of engine/core only.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>

#include "engine/core/error.h"
#include "engine/core/io_watch.h"

namespace tessera::io_layer {

// A signal may interrupt a call again and again; past this many tries it counts as a failure.
inline constexpr int kInterruptRetries = 64;

// One system call, past the watcher: repeats on EINTR, returns -1 with errno set on failure.
template <typename Call>
auto through_layer(IoOp op, Call call) -> decltype(call(false)) {
  for (int attempt = 0;; ++attempt) {
    IoWatcher* const watcher = installed_watcher().load(std::memory_order_acquire);
    const IoAnswer answer = watcher != nullptr ? watcher->answer(op) : IoAnswer{};
    decltype(call(false)) result = -1;
    if (answer.error != 0) {
      errno = answer.error;
    } else {
      result = call(answer.cut_short);
    }
    if (result != -1 || errno != EINTR || attempt >= kInterruptRetries) return result;
  }
}

class FileHandle {
 public:
  explicit FileHandle(int fd = -1) : fd_(fd) {}
  ~FileHandle() {
    if (fd_ >= 0) ::close(fd_);
  }
  FileHandle(FileHandle&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileHandle& operator=(FileHandle&&) = delete;
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  // The result of close() matters after writing: some file systems report a full disk only here.
  int close() { return ::close(std::exchange(fd_, -1)); }

 private:
  int fd_;
};

int layer_open(const std::filesystem::path& path, int flags, mode_t mode = 0);
ssize_t layer_read(int fd, char* data, std::size_t size);
ssize_t layer_write(int fd, const std::byte* data, std::size_t size);
int layer_sync(int fd);
int layer_rename(const std::filesystem::path& from, const std::filesystem::path& to);
// Fails with EEXIST where layer_rename() would replace.
int layer_rename_new(const std::filesystem::path& from, const std::filesystem::path& to);
int layer_unlink(const std::filesystem::path& path);
int layer_truncate(int fd, std::uint64_t size);
int layer_mkdir(const std::filesystem::path& path);
int layer_fstat(int fd, struct stat& out);
int layer_stat(const std::filesystem::path& path, struct stat& out);

bool write_all(int fd, std::span<const std::byte> data);
// Makes a rename in the folder durable. File systems without folder sync answer EINVAL: no failure.
bool sync_folder(const std::filesystem::path& folder);

// A name that nothing has, in the same folder; target_of_temporary() knows it again.
std::filesystem::path temporary_next_to(const std::filesystem::path& path);
std::filesystem::path parent_or_dot(const std::filesystem::path& path);
std::string errno_text(int error);
std::string type_name(mode_t mode);

// Opens a regular file for reading. O_NONBLOCK keeps a pipe of that name from blocking for ever.
FileHandle open_regular(const std::filesystem::path& path, ErrorKind kind, struct stat& info,
                        int more_flags = 0);
[[noreturn]] void fail_open(const std::filesystem::path& path, ErrorKind kind,
                            const std::string& found);
[[noreturn]] void fail_storage(const std::filesystem::path& path, const char* step, int error,
                               std::uint64_t needed);

}  // namespace tessera::io_layer
