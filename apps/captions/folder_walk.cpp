// The walk never follows a link to a folder, so it ends; names beginning with a dot are not shown
// to users and not captioned.
#include "apps/captions/folder_walk.h"

#include <algorithm>
#include <utility>

#include "apps/captions/subtitles.h"
#include "apps/captions/text_forms.h"
#include "apps/captions/webdataset.h"
#include "engine/core/file_stream.h"
#include "engine/core/io.h"

namespace tessera {

namespace fs = std::filesystem;

FolderWalk::FolderWalk(fs::path root, bool recursive, bool videos)
    : root_(std::move(root)), recursive_(recursive), videos_(videos) {}

std::optional<WalkStep> FolderWalk::enter(const fs::path& folder) {
  Level level;
  try {
    level.names = list_folder(folder);
  } catch (const Error& error) {
    ErrorInfo info = error.info();
    info.kind = ErrorKind::kGeneral;
    return WalkStep{folder, info};
  }
  for (fs::path& name : level.names) name = name.filename();
  std::erase_if(level.names, [](const fs::path& name) { return name.native().front() == '.'; });
  std::sort(level.names.begin(), level.names.end(), [](const fs::path& a, const fs::path& b) {
    return natural_less(a.native(), b.native());
  });
  for (fs::path& name : level.names) name = folder / name;
  levels_.push_back(std::move(level));
  return std::nullopt;
}

std::optional<WalkStep> FolderWalk::next() {
  if (!std::exchange(started_, true)) {
    if (auto failed = enter(root_)) return failed;
  }
  while (!levels_.empty()) {
    Level& level = levels_.back();
    if (level.at == level.names.size()) {
      levels_.pop_back();
      continue;
    }
    const fs::path path = level.names[level.at++];
    FileType type = FileType::kMissing;
    try {
      type = file_type(path);
    } catch (const Error& error) {
      return WalkStep{path, error.info()};
    }
    if (type == FileType::kFolder) {
      if (!recursive_) continue;
      if (auto failed = enter(path)) return failed;
      continue;
    }
    if (type == FileType::kLink && is_folder(path)) {
      ++links_skipped_;
      continue;
    }
    const std::string ending = path.extension().string();
    if (ending.empty()) continue;
    const bool video = videos_ && is_video_extension(ending.substr(1));
    if (video || is_image_extension(ending.substr(1))) return WalkStep{path, {}};
  }
  return std::nullopt;
}

}  // namespace tessera
