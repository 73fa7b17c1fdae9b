// The images and videos of one folder as the gallery shows them: found newest first, noticed when
// they change, read one at a time by the confined readers. No thread of its own.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <vector>

#include "apps/studio/snapshot.h"
#include "engine/core/file_stamp.h"
#include "video/frame_reader.h"
#include "vision/image/image_reader.h"

namespace tessera {

inline constexpr std::size_t kMaxCaptionBytes = std::size_t{64} << 10;

// PNG, JPEG, WebP, GIF, BMP by the ending of the name; nothing hidden.
bool is_image_name(const std::filesystem::path& path);
// MP4, MOV, Matroska, WebM, AVI likewise.
bool is_video_name(const std::filesystem::path& path);
std::filesystem::path caption_file_of(const std::filesystem::path& image);
// The text next to an image; empty where there is none, or none of UTF-8 and at most 64 KiB.
std::string read_caption_file(const std::filesystem::path& image);

// All images of a folder that have no text next to them, newest first. A folder that is not there,
// or may not be read, is an empty one.
struct Undescribed {
  std::vector<std::filesystem::path> images;
  std::int64_t described = 0;  // the others
};
Undescribed undescribed_images(const std::filesystem::path& folder);

// The image at full size, over white where it is clear; or why not.
OpenedImage open_image(const std::filesystem::path& path, ImageReader& reader);
// At most kThumbnailSide a side, never larger than the image.
Image thumbnail_of(const Image& image);

// What reads the files of a folder: of videos a process each.
struct GalleryReaders {
  ImageReader images;
  FrameReaderOptions videos;
};

class Gallery {
 public:
  static constexpr std::size_t kMaxShown = 500;

  explicit Gallery(std::filesystem::path folder) : folder_(std::move(folder)) {}

  const std::filesystem::path& folder() const { return folder_; }
  // Looks for what changed since the last call: true when the list is another one. A folder that is
  // not there, or may not be read, is an empty one.
  bool poll();
  std::vector<GalleryEntry> entries() const;
  std::int64_t left_out() const { return left_out_; }

  // Reads the next image, or the first frame of the next video, that is not known, newest first;
  // none when all are.
  std::optional<GalleryEntry> read_next(GalleryReaders& readers);

 private:
  struct Known {
    FileStamp stamp;
    std::optional<FileStamp> caption;
    bool read = false;
    GalleryEntry entry;
  };
  bool list();
  bool look_again();

  std::filesystem::path folder_;
  std::optional<FileStamp> folder_stamp_;
  bool listed_ = false, fresh_ = false;
  std::vector<std::filesystem::path> shown_;  // newest first
  std::map<std::filesystem::path, Known> known_;
  std::int64_t left_out_ = 0;
};

}  // namespace tessera
