// Files that are too long to be read or written whole: input read from front to back, output
// appended to and cut back, both through the layer of engine/core/io.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "engine/core/error.h"
#include "engine/core/io_layer.h"

namespace tessera {

// Bytes from front to back. size() is known before the first read; of a source that unpacks it is an
// upper bound.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // At most `size` bytes into data; fewer only at the end of the bytes.
  virtual std::size_t read(char* data, std::size_t size) = 0;
  virtual std::uint64_t size() const = 0;
};

// A regular file. Error `kind`: E_IO_OPEN, E_IO_READ.
class InputFile final : public ByteSource {
 public:
  explicit InputFile(const std::filesystem::path& path, ErrorKind kind = ErrorKind::kGeneral);
  std::size_t read(char* data, std::size_t size) override;
  std::uint64_t size() const override { return size_; }
  // Goes to a place at most size() bytes from the front.
  void seek(std::uint64_t offset);
  // Error E_IO_CHANGED if the file has another length or time of change than when it was opened.
  void check_unchanged() const;

 private:
  std::filesystem::path path_;
  ErrorKind kind_;
  struct stat info_ {};
  io_layer::FileHandle file_;
  std::uint64_t size_ = 0, at_ = 0;
};

// A file that grows at its end and can be cut back. Every failure is Error kStorage; after one the
// object must not be used again (pages of a failed sync may be marked clean, so a second try would
// prove nothing).
class AppendFile {
 public:
  enum class Lock : std::uint8_t { kNone, kExclusive };

  // Opens or creates; a link or anything but a regular file is refused. kExclusive: E_IO_LOCKED if
  // another process holds the file, or put another one in its place meanwhile; the lock ends with
  // the object or with the process.
  explicit AppendFile(const std::filesystem::path& path, Lock lock = Lock::kNone);

  std::uint64_t size() const { return size_; }
  const std::filesystem::path& path() const { return path_; }
  void append(std::string_view data);
  void cut(std::uint64_t size);  // size <= size()
  void sync();                   // the data, and on the first call the name too

 private:
  [[noreturn]] void fail(const char* step, std::uint64_t needed = 0);
  void check_name(const struct stat& opened);

  std::filesystem::path path_;
  io_layer::FileHandle file_;
  std::uint64_t size_ = 0;
  bool name_synced_ = false, broken_ = false;
};

enum class FileType : std::uint8_t { kMissing, kFile, kFolder, kLink, kOther };
// Of the name itself: links are kLink. Error kGeneral, E_IO_STAT, if nobody can say: "missing" must
// never be a guess.
FileType file_type(const std::filesystem::path& path);

// A small regular file, never through a link. Error kGeneral: E_IO_OPEN, E_IO_READ, E_IO_SIZE.
std::string read_file_no_link(const std::filesystem::path& path, std::size_t max_bytes);

// Renames and syncs the folder. Error kStorage.
void rename_durable(const std::filesystem::path& from, const std::filesystem::path& to);
// Removes a file if it is there, and syncs the folder. Error kStorage.
void remove_durable(const std::filesystem::path& path);

}  // namespace tessera
