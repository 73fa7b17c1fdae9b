#include "engine/families/folder_pointers.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "engine/core/io.h"
#include "engine/core/lfs_pointer.h"

namespace tessera {

namespace {

namespace fs = std::filesystem;

constexpr std::uintmax_t kPointerBytes = 1024;  // a pointer has about 130
constexpr std::size_t kMaxEntries = 4096;

void refuse_pointer(const fs::path& file) {
  static constexpr std::array<std::string_view, 4> kKinds = {".json", ".jinja", ".model", ".txt"};
  const std::string extension = file.extension().string();
  if (std::find(kKinds.begin(), kKinds.end(), extension) == kKinds.end()) return;
  std::error_code error;
  const std::uintmax_t size = fs::file_size(file, error);
  if (error || size > kPointerBytes) return;
  if (!is_lfs_pointer(read_file(file, kPointerBytes))) return;
  throw Error({.kind = ErrorKind::kModel,
               .code = "E_LFS_POINTER",
               .file = file.string(),
               .expected = "the file itself",
               .found = "a git-lfs pointer to it",
               .hint = "`git lfs pull` in that folder fetches it"});
}

}  // namespace

void refuse_pointers(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> files;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    if (files.size() == kMaxEntries) break;
    std::error_code kind;
    if (at->is_regular_file(kind)) files.push_back(at->path());
  }
  std::sort(files.begin(), files.end());  // the same message wherever the folder lies
  for (const fs::path& file : files) refuse_pointer(file);
}

}  // namespace tessera
