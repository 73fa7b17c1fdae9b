// Videos as values: what a file says of itself, frames with their times, limits. Times are exact:
// whole ticks of a rational unit, as containers keep them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/core/error.h"
#include "engine/core/index.h"

namespace tessera {

// num / den, both positive.
struct Rational {
  std::int64_t num = 0;
  std::int64_t den = 1;
  bool operator==(const Rational&) const = default;
  double value() const { return to_double(num) / to_double(den); }
};

// What a video may ask for. Checked before anything is allocated.
struct VideoLimits {
  std::uint64_t side = 8192;                              // pixels
  std::uint64_t pixels = std::uint64_t{33} << 20;         // of a frame
  std::uint64_t frames = 10'000'000;                      // of a file
  double rate = 1000.0;                                   // frames a second
  std::uint64_t decoded_pixels = std::uint64_t{1} << 42;  // of one opened file, all frames together
};

struct VideoInfo {
  std::string container;   // "mp4", "matroska", "avi"
  std::string codec;       // "h264", "ffv1" ...
  std::int64_t width = 0;  // pixels, upright
  std::int64_t height = 0;
  int turned = 0;                  // degrees clockwise by which stored frames are turned: 0, 90 ...
  Rational tick;                   // seconds: the unit of times
  Rational rate;                   // frames a second as the file says, 0/1 if it does not
  std::vector<std::string> notes;  // what was left out or replaced, one short line each
};

// 8-bit RGB, upright, [height, width, 3].
struct VideoFrame {
  std::int64_t ticks = 0;  // since the start of the stream, in VideoInfo::tick
  std::int64_t width = 0, height = 0;
  std::vector<std::uint8_t> rgb;
};

// Bytes of a file at any place, as the reader of videos asks for them.
class FileBytes {
 public:
  virtual ~FileBytes() = default;
  // Up to `count` bytes from `offset`; fewer only at the end of the file.
  virtual std::size_t read(std::uint64_t offset, std::uint8_t* data, std::size_t count) = 0;
  virtual std::uint64_t size() const = 0;
};

// Where the writer of videos puts its bytes: any place, written before or not.
class VideoSink {
 public:
  virtual ~VideoSink() = default;
  virtual void write(std::uint64_t offset, const std::uint8_t* data, std::size_t count) = 0;
};

// What a written video shall be. Animated WebP keeps every pixel and whole milliseconds; GIF has 256
// colours a frame, chosen anew for each, and whole hundredths of a second.
enum class VideoContainer : std::uint8_t { kMp4, kWebm, kMatroska, kWebp, kGif };
enum class VideoCodec : std::uint8_t { kAuto, kH264, kMpeg4, kVp9, kAv1, kFfv1, kWebp, kGif };
inline constexpr VideoContainer kVideoContainers[] = {VideoContainer::kMp4, VideoContainer::kWebm,
                                                    VideoContainer::kMatroska, VideoContainer::kWebp,
                                                    VideoContainer::kGif};
inline constexpr unsigned kVideoCodecs = 8;  // kAuto counted

struct VideoFormat {
  VideoContainer container = VideoContainer::kMp4;
  VideoCodec codec = VideoCodec::kAuto;  // the first of the container's that is there
  std::int64_t width = 0, height = 0;  // pixels
  Rational tick{1, 8};                 // seconds
  int quality = 80;                    // 1 to 100; of H.264, MPEG-4, VP9 and AV1 alone
  std::string comment;                 // a tag of the container, UTF-8 without NUL; GIF has none
};

// "mp4", "webm", "mkv", "webp", "gif"; "h264" ...
std::string_view name_of(VideoContainer container);
std::string_view name_of(VideoCodec codec);

}  // namespace tessera
