// What "image_url" names: bytes in the request itself, or a file below the folder that the server
// was given. Nothing is ever fetched.
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "apps/serve/service.h"
#include "engine/core/index.h"

namespace tessera {

namespace {

constexpr std::int64_t kMaxFile = std::int64_t{64} << 20;

// A file descriptor that closes.
class File {
 public:
  explicit File(int number) : number_(number) {}
  ~File() {
    if (number_ >= 0) close(number_);
  }
  File(const File&) = delete;
  int number() const { return number_; }
  bool open() const { return number_ >= 0; }

 private:
  int number_;
};

// Whatever links and ".." say, the kernel does not leave the folder.
std::string read_below(const std::filesystem::path& root, const std::string& path,
                       const std::string& field) {
  const File folder(open(root.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  struct open_how how = {};
  how.flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
  const File file(narrow<int>(
      syscall(SYS_openat2, folder.number(), path.c_str(), &how, sizeof how)));
  struct stat info = {};
  if (!file.open() || fstat(file.number(), &info) != 0 || !S_ISREG(info.st_mode) ||
      info.st_size > kMaxFile) {
    refuse_field(field, "a file below the media root, of 64 MiB at most", "none", "", "E_MEDIA");
  }
  std::string out(to_size(info.st_size), '\0');
  std::size_t at = 0;
  while (at < out.size()) {
    const ssize_t count = read(file.number(), out.data() + at, out.size() - at);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    at += to_size(count);
  }
  out.resize(at);
  return out;
}

}  // namespace

std::string image_bytes(const Service& service, const std::string& url, const std::string& field) {
  constexpr std::string_view kData = "data:", kFile = "file:";
  if (url.starts_with(kData)) {
    const std::size_t comma = url.find(',');
    const std::string_view head = std::string_view(url).substr(0, comma);
    if (comma == std::string::npos || !head.ends_with(";base64")) {
      refuse_field(field, "data:TYPE;base64,BYTES", "another data URL", "", "E_MEDIA");
    }
    return from_base64(std::string_view(url).substr(comma + 1), field);
  }
  const bool other = url.find("://") != std::string::npos && !url.starts_with("file://");
  if (other || service.options().media_root.empty()) {
    refuse_field(field, "a data URL, as nothing is fetched",
                 other ? "an address" : "a path, without --media-root", "", "E_MEDIA");
  }
  std::string path = url;
  if (path.starts_with(kFile)) path = path.substr(kFile.size());
  // A whole path is one of the root's, which it may name.
  std::error_code ignored;
  const std::string root = std::filesystem::canonical(service.options().media_root, ignored).string() + "/";
  while (path.starts_with("//")) path = path.substr(1);
  if (path.starts_with(root)) path = path.substr(root.size());
  while (path.starts_with('/')) path = path.substr(1);
  if (path.empty() || path.find('\0') != std::string::npos) {
    refuse_field(field, "a path below the media root", "none", "", "E_MEDIA");
  }
  return read_below(service.options().media_root, path, field);
}

}  // namespace tessera
