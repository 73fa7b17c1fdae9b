#include "apps/studio/gallery.h"

#include <algorithm>
#include <new>
#include <string_view>
#include <utility>

#include "apps/runtime/metadata.h"
#include "engine/core/index.h"
#include "engine/core/io.h"
#include "engine/core/utf8.h"
#include "vision/image/resample.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

constexpr Rgb kWhite = {255, 255, 255};

std::string lower(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = char_of(c - 'A' + 'a');
  }
  return text;
}

// What a file records of its making; other files than PNG record nothing that we read.
std::optional<ImageFacts> facts_of(const fs::path& path) {
  try {
    return read_metadata(path).facts;
  } catch (const Error&) {  // no whole PNG: the reader of pixels says so if it matters
    return std::nullopt;
  }
}

using Dated = std::pair<FileStamp, fs::path>;

// A folder that is gone, or not ours to read, has nothing to show.
template <typename Wanted>
std::vector<Dated> files_of(const fs::path& folder, const Wanted& wanted) {
  std::vector<Dated> found;
  try {
    if (!is_folder(folder)) return found;
    for (fs::path& path : list_folder(folder)) {
      if (!wanted(path) || is_folder(path)) continue;
      if (const auto stamp = file_stamp(path)) found.emplace_back(*stamp, std::move(path));
    }
  } catch (const Error&) {
    found.clear();
  }
  return found;
}

bool newer(const Dated& a, const Dated& b) {
  return a.first.mtime_ns != b.first.mtime_ns ? a.first.mtime_ns > b.first.mtime_ns
                                              : a.second < b.second;
}

bool is_shown(const fs::path& path) { return is_image_name(path) || is_video_name(path); }

bool has_ending(const fs::path& path, std::initializer_list<std::string_view> endings) {
  const std::string name = path.filename().string();
  if (name.empty() || name.front() == '.') return false;
  const std::string ending = lower(path.extension().string());
  return std::find(endings.begin(), endings.end(), ending) != endings.end();
}

void read_video_entry(GalleryEntry& entry, const FrameReaderOptions& options) {
  entry.thumbnail = nullptr;
  entry.problem.clear();
  try {
    FrameReader reader(entry.path, options);
    entry.width = reader.info().width;
    entry.height = reader.info().height;
    std::optional<VideoFrame> first = reader.next();
    if (!first) {
      entry.problem = "a video without frames";
      return;
    }
    const Image image(first->width, first->height, std::move(first->rgb));
    entry.thumbnail = std::make_shared<const Image>(thumbnail_of(image));
  } catch (const Error& error) {  // one bad file
    ErrorInfo info = error.info();
    info.file.clear();  // shown next to the path
    entry.problem = format_error(info);
  } catch (const std::bad_alloc&) {
    entry.problem = "no memory for this video";
  }
}

void read_image_entry(GalleryEntry& entry, ImageReader& reader) {
  const OpenedImage opened = open_image(entry.path, reader);
  entry.thumbnail = nullptr;
  entry.problem = opened.problem;
  entry.facts = facts_of(entry.path);
  if (opened.image == nullptr) return;
  entry.width = opened.image->width;
  entry.height = opened.image->height;
  entry.thumbnail = std::make_shared<const Image>(thumbnail_of(*opened.image));
}

}  // namespace

bool is_image_name(const fs::path& path) {
  return has_ending(path, {".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp"});
}

bool is_video_name(const fs::path& path) {
  return has_ending(path, {".mp4", ".m4v", ".mov", ".mkv", ".webm", ".avi"});
}

fs::path caption_file_of(const fs::path& decoded_image) {
  return fs::path(decoded_image).replace_extension(".txt");
}

std::string read_caption_file(const fs::path& decoded_image) {
  const fs::path file = caption_file_of(decoded_image);
  if (!file_exists(file)) return {};
  try {
    std::string text = read_file(file, kMaxCaptionBytes, ErrorKind::kGeneral);
    return is_valid_utf8(text) ? text : std::string();
  } catch (const Error&) {  // too long, or nothing that may be read
    return {};
  }
}

Undescribed undescribed_images(const fs::path& folder) {
  std::vector<Dated> found = files_of(folder, is_image_name);
  std::sort(found.begin(), found.end(), newer);
  Undescribed out;
  for (auto& [stamp, path] : found) {
    if (read_caption_file(path).empty()) {
      out.images.push_back(std::move(path));
    } else {
      ++out.described;
    }
  }
  return out;
}

OpenedImage open_image(const fs::path& path, ImageReader& reader) {
  OpenedImage out;
  out.path = path;
  try {
    out.image = std::make_shared<const Image>(on_background(reader.read(path), kWhite));
  } catch (const Error& error) {  // one bad file
    ErrorInfo info = error.info();
    info.file.clear();  // shown next to the path
    out.problem = format_error(info);
  } catch (const std::bad_alloc&) {
    out.problem = "no memory for this image";
  }
  return out;
}

Image thumbnail_of(const Image& image) {
  const std::int64_t longest = std::max(image.width, image.height);
  if (longest <= kThumbnailSide) return image;
  const auto side = [&](std::int64_t pixels) {
    return std::max<std::int64_t>(1, (pixels * kThumbnailSide + longest / 2) / longest);
  };
  return resize(image, side(image.width), side(image.height), ResampleFilter::kBox);
}

// Names that come while a folder is listed may carry the very time that was seen: what changed is
// listed once more at the next look.
bool Gallery::poll() {
  const std::optional<FileStamp> now = file_stamp(folder_);
  const bool changed = !listed_ || now != folder_stamp_;
  const bool again = std::exchange(fresh_, changed);
  folder_stamp_ = now;
  if (changed || again) return list();
  return look_again();
}

bool Gallery::list() {
  std::vector<Dated> found;
  if (folder_stamp_) found = files_of(folder_, is_shown);
  const std::size_t shown = std::min(found.size(), kMaxShown);
  std::partial_sort(found.begin(), found.begin() + to_index(shown), found.end(), newer);
  const auto left_out = to_index(found.size() - shown);
  found.resize(shown);
  std::vector<fs::path> names;
  std::map<fs::path, Known> known;
  for (auto& [stamp, path] : found) {
    const auto old = known_.find(path);
    Known one = old != known_.end() ? std::move(old->second) : Known{};
    one.entry.path = path;
    one.entry.video = is_video_name(path);
    if (one.stamp != stamp) one.read = false;
    one.stamp = stamp;
    names.push_back(path);
    known.emplace(path, std::move(one));
  }
  known_ = std::move(known);
  const bool same = listed_ && names == shown_ && left_out == left_out_;
  shown_ = std::move(names);
  left_out_ = left_out;
  listed_ = true;
  const bool touched = look_again();
  return !same || touched;
}

// Files that were written in place, and texts next to them.
bool Gallery::look_again() {
  bool changed = false;
  for (const fs::path& path : shown_) {
    Known& one = known_.at(path);
    const std::optional<FileStamp> now = file_stamp(path);
    if (now && *now != one.stamp) {
      one.stamp = *now;
      one.read = false;
    }
    const std::optional<FileStamp> caption = file_stamp(caption_file_of(path));
    if (caption == one.caption) continue;
    one.caption = caption;
    one.entry.caption = caption ? read_caption_file(path) : std::string();
    changed = true;
  }
  return changed;
}

std::vector<GalleryEntry> Gallery::entries() const {
  std::vector<GalleryEntry> out;
  for (const fs::path& path : shown_) out.push_back(known_.at(path).entry);
  return out;
}

std::optional<GalleryEntry> Gallery::read_next(GalleryReaders& readers) {
  for (const fs::path& path : shown_) {
    Known& one = known_.at(path);
    if (one.read) continue;
    one.read = true;
    if (is_video_name(path)) {
      read_video_entry(one.entry, readers.videos);
    } else {
      read_image_entry(one.entry, readers.images);
    }
    return one.entry;
  }
  return std::nullopt;
}

}  // namespace tessera
