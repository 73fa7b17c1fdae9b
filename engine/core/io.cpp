// File access. Reads are mapped or whole; writes go to a temporary next to the target and are
// renamed over it, so that no reader ever sees half a file. Every system call goes
// through io_layer.h.
#include "engine/core/io.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <memory>
#include <utility>

#include "engine/core/atomic_file.h"
#include "engine/core/index.h"
#include "engine/core/io_layer.h"
#include "engine/core/publish.h"

namespace tessera {

namespace fs = std::filesystem;
using namespace io_layer;

namespace {

constexpr std::size_t kReadChunk = std::size_t{1} << 20;

std::int64_t mtime_ns(const struct stat& info) {
  return std::int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
}

bool all_digits(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

}  // namespace

namespace io_layer {

// The temporary file of one atomic write; removed unless it was renamed into place.
class TemporaryFile {
 public:
  explicit TemporaryFile(fs::path path) : path_(std::move(path)) {}
  ~TemporaryFile() {
    if (!armed_) return;
    // The plain call is the second try, past the watcher: no rubbish stays in the user's folder.
    if (layer_unlink(path_) != 0) ::unlink(path_.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  const fs::path& path() const { return path_; }
  void arm() { armed_ = true; }
  void disarm() { armed_ = false; }

 private:
  fs::path path_;
  bool armed_ = false;
};

}  // namespace io_layer

fs::path io_layer::temporary_next_to(const fs::path& path) {
  static std::atomic<std::uint64_t> counter{0};
  const std::string name = "." + path.filename().string().substr(0, kTemporaryNameBytes) + ".tmp-" +
                           std::to_string(::getpid()) + "-" + std::to_string(++counter);
  return parent_or_dot(path) / name;
}

MappedFile::MappedFile(const fs::path& path) : path_(path) {
  struct stat info {};
  const FileHandle file = open_regular(path, ErrorKind::kModel, info);
  inode_ = info.st_ino;
  size_ = narrow<std::uint64_t>(info.st_size);
  mtime_ns_ = mtime_ns(info);
  if (size_ == 0) return;
  void* memory = nullptr;
  const int mapped = through_layer(IoOp::kMap, [&](bool) {
    memory = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.get(), 0);
    return memory == MAP_FAILED ? -1 : 0;
  });
  if (mapped != 0) fail_open(path, ErrorKind::kModel, "no mapping: " + errno_text(errno));
  bytes_ = {static_cast<const std::byte*>(memory), size_};
  guard_ = BusGuard(bytes_);
}

MappedFile::~MappedFile() {
  guard_ = BusGuard();
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      bytes_(std::exchange(other.bytes_, {})),
      guard_(std::move(other.guard_)),
      inode_(other.inode_),
      size_(other.size_),
      mtime_ns_(other.mtime_ns_) {}

bool MappedFile::changed_on_disk() const {
  struct stat info {};
  if (guard_.hit() || layer_stat(path_, info) != 0) return true;
  return info.st_ino != inode_ || narrow<std::uint64_t>(info.st_size) != size_ ||
         mtime_ns(info) != mtime_ns_;
}

void MappedFile::release(std::size_t offset, std::size_t length) const {
  expects(offset <= bytes_.size() && length <= bytes_.size() - offset, "range lies in the file");
  static const std::size_t page = to_size(::sysconf(_SC_PAGESIZE));
  // Only whole pages inside the range: the ones at its ends may hold a neighbour's bytes.
  const std::size_t begin = (offset + page - 1) / page * page;
  const std::size_t end = (offset + length) / page * page;
  if (begin >= end) return;
  ::madvise(const_cast<std::byte*>(bytes_.data()) + begin, end - begin, MADV_DONTNEED);
}

std::string read_file(const fs::path& path, std::size_t max_bytes, ErrorKind kind) {
  struct stat info {};
  const FileHandle file = open_regular(path, kind, info);
  const auto refuse_size = [&](std::uint64_t size) {
    throw Error({.kind = kind,
                 .code = "E_IO_SIZE",
                 .file = path.string(),
                 .expected = "at most " + std::to_string(max_bytes) + " bytes",
                 .found = std::to_string(size)});
  };
  if (narrow<std::uint64_t>(info.st_size) > max_bytes) {
    refuse_size(narrow<std::uint64_t>(info.st_size));
  }
  const std::size_t known = to_size(info.st_size) + 1;  // one more, to see that it ended
  std::string text;
  while (true) {
    // The file may grow while it is read; one byte past the limit is enough to know.
    const std::size_t left = known > text.size() ? known - text.size() : kReadChunk;
    const std::size_t want = std::min({kReadChunk, left, max_bytes - text.size() + 1});
    const std::size_t before = text.size();
    text.resize(before + want);
    const ssize_t got = layer_read(file.get(), text.data() + before, want);
    if (got < 0) {
      throw Error({.kind = kind,
                   .code = "E_IO_READ",
                   .file = path.string(),
                   .where = "byte " + std::to_string(before),
                   .expected = "readable bytes",
                   .found = errno_text(errno)});
    }
    text.resize(before + to_size(got));
    if (text.size() > max_bytes) refuse_size(text.size());
    if (got == 0) return text;
  }
}

struct AtomicFile::State {
  explicit State(const fs::path& path)
      : temporary(temporary_next_to(path)),
        file(layer_open(temporary.path(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0666)) {
    if (file) temporary.arm();
  }
  TemporaryFile temporary;
  FileHandle file;
};

AtomicFile::AtomicFile(fs::path path, std::uint64_t needed)
    : path_(std::move(path)), needed_(needed) {
  if (!path_.has_filename()) {
    errno = EISDIR;
    fail("name");
  }
  state_ = std::make_unique<State>(path_);
  if (!state_->file) fail("create");
}

AtomicFile::~AtomicFile() = default;

void AtomicFile::fail(const char* step) const {
  fail_storage(path_, step, errno, std::max(needed_, size_));
}

void AtomicFile::append(std::span<const std::byte> data) {
  size_ += data.size();
  if (!write_all(state_->file.get(), data)) fail("write");
}

bool AtomicFile::publish(Publish publish, Sync sync) {
  if (sync == Sync::kOn && layer_sync(state_->file.get()) != 0) fail("sync");
  if (state_->file.close() != 0) fail("close");
  const bool replace = publish == Publish::kReplace;
  if ((replace ? layer_rename : layer_rename_new)(state_->temporary.path(), path_) != 0) {
    if (!replace && errno == EEXIST) return false;
    fail("rename");
  }
  state_->temporary.disarm();
  if (sync == Sync::kOn && !sync_folder(parent_or_dot(path_))) fail("sync of the folder");
  return true;
}

namespace {

// False if the name is taken and must not be replaced.
bool write_and_rename(const fs::path& path, std::span<const std::span<const std::byte>> pieces,
                      Publish publish, Sync sync = Sync::kOn) {
  std::uint64_t total = 0;
  for (const auto& piece : pieces) total += piece.size();
  AtomicFile file(path, total);
  for (const auto& piece : pieces) file.append(piece);
  return file.publish(publish, sync);
}

}  // namespace

void write_file_atomic(const fs::path& path, std::span<const std::span<const std::byte>> pieces) {
  write_and_rename(path, pieces, Publish::kReplace);
}

bool publish_file(const fs::path& path, std::string_view text, Publish publish, Sync sync) {
  const auto bytes = std::as_bytes(std::span(text.data(), text.size()));
  return write_and_rename(path, std::span<const std::span<const std::byte>>(&bytes, 1), publish,
                          sync);
}

void write_file_atomic(const fs::path& path, std::span<const std::byte> data) {
  write_file_atomic(path, std::span<const std::span<const std::byte>>(&data, 1));
}

void write_file_atomic(const fs::path& path, std::string_view text) {
  write_file_atomic(path, std::as_bytes(std::span(text.data(), text.size())));
}

void ensure_output_folder(const fs::path& folder) {
  const auto fail = [&](const char* step, const std::string& found) {
    throw Error({.kind = ErrorKind::kStorage,
                 .code = "E_IO_FOLDER",
                 .file = folder.string(),
                 .where = step,
                 .expected = "a folder that can be written",
                 .found = found});
  };
  fs::path prefix;
  for (const fs::path& part : folder) {
    prefix /= part;
    const int made = layer_mkdir(prefix);
    // Only a missing last part matters: "/" or a parent one may not write to is no obstacle.
    struct stat info {};
    const int error = errno;
    if (made != 0 && layer_stat(prefix, info) != 0) fail("create", errno_text(error));
    if (made != 0 && !S_ISDIR(info.st_mode)) fail("create", "a file of that name");
  }
  TemporaryFile probe(temporary_next_to(folder / "probe"));
  FileHandle file(layer_open(probe.path(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0666));
  if (!file) fail("write", errno_text(errno));
  probe.arm();
}

void make_folders_durable(const fs::path& folder) {
  fs::path prefix;
  for (const fs::path& part : folder) {
    prefix /= part;
    struct stat info {};
    if (layer_stat(prefix, info) == 0 && S_ISDIR(info.st_mode)) {
      // Whoever made it may have been killed before its name was synced. Folders above that may not
      // be read are nobody's who could have died here.
      if (!sync_folder(parent_or_dot(prefix)) && errno != EACCES && errno != EPERM) {
        fail_storage(prefix, "sync of the folder", errno, 0);
      }
      continue;
    }
    if (layer_mkdir(prefix) != 0 && errno != EEXIST) fail_storage(prefix, "create", errno, 0);
    if (layer_stat(prefix, info) != 0 || !S_ISDIR(info.st_mode)) {
      fail_storage(prefix, "create", ENOTDIR, 0);
    }
    if (!sync_folder(parent_or_dot(prefix))) {
      fail_storage(prefix, "sync of the folder", errno, 0);
    }
  }
}

std::string_view target_of_temporary(std::string_view name) {
  static constexpr std::string_view kMark = ".tmp-";
  const std::size_t mark = name.rfind(kMark);
  if (mark == std::string_view::npos || !name.starts_with('.') || mark < 2) return {};
  const std::string_view numbers = name.substr(mark + kMark.size());
  const std::size_t dash = std::min(numbers.find('-'), numbers.size());
  if (dash == numbers.size() || !all_digits(numbers.substr(0, dash))) return {};
  if (!all_digits(numbers.substr(dash + 1))) return {};
  return name.substr(1, mark - 1);
}

bool file_exists(const fs::path& path) {
  struct stat info {};
  return layer_stat(path, info) == 0;
}

bool is_folder(const fs::path& path) {
  struct stat info {};
  return layer_stat(path, info) == 0 && S_ISDIR(info.st_mode);
}

std::vector<fs::path> list_folder(const fs::path& folder) {
  DIR* handle = nullptr;
  const int opened = through_layer(IoOp::kList, [&](bool) {
    handle = ::opendir(folder.c_str());
    return handle == nullptr ? -1 : 0;
  });
  if (opened != 0) {
    throw Error({.kind = ErrorKind::kModel,
                 .code = "E_IO_LIST",
                 .file = folder.string(),
                 .expected = "a readable folder",
                 .found = errno_text(errno)});
  }
  const std::unique_ptr<DIR, int (*)(DIR*)> closer(handle, &::closedir);
  std::vector<fs::path> out;
  while (const dirent* entry = ::readdir(handle)) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") out.push_back(folder / name);
  }
  std::sort(out.begin(), out.end());
  return out;
}

double monotonic_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return to_double(now.tv_sec) + to_double(now.tv_nsec) * 1e-9;
}

}  // namespace tessera
