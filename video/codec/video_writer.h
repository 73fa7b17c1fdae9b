// Writing of videos with FFmpeg's libraries, through a sink that owns the file. One thread and no
// clock: the same frames give the same bytes on one build of the libraries.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "video/video.h"

namespace tessera {

class WebpWriter;

// The codecs that a container can hold and this build of the libraries can write, the one that
// kAuto takes first. mp4: h264, mpeg4; webm: vp9, av1; matroska: ffv1, h264, vp9, av1;
// webp, gif: their own.
std::vector<VideoCodec> codecs_for(VideoContainer container);

// Errors, kind kGeneral: E_VIDEO_CODEC (not there, or not for this container), E_VIDEO_SIZE (sides
// of 16 to 8192; even ones where the codec halves its colours), E_VIDEO_TIME (not growing,
// or, of WebP and GIF, frames that stay shorter or longer than those can tell: GIF 2 to 65,535
// hundredths of a second), E_VIDEO_EMPTY (no frame at the end). What
// the sink throws passes through.
class VideoWriter {
 public:
  // `sink` outlives the writer.
  VideoWriter(VideoSink& sink, const VideoFormat& format);
  ~VideoWriter();
  VideoWriter(const VideoWriter&) = delete;
  VideoWriter& operator=(const VideoWriter&) = delete;

  VideoCodec codec() const { return kind_; }
  // rgb [height, width, 3] u8, on the screen from `ticks` on.
  void put(std::span<const std::uint8_t> rgb, std::int64_t ticks);
  // Ends the file; the last frame stays until `end_ticks`. Without it the file is unfinished.
  void finish(std::int64_t end_ticks);

 private:
  struct Ffmpeg;

  VideoFormat format_;
  VideoCodec kind_;
  std::unique_ptr<Ffmpeg> ffmpeg_;
  std::unique_ptr<WebpWriter> webp_;  // one of both
  std::uint64_t frames_ = 0;
  bool ended_ = false;
};

}  // namespace tessera
