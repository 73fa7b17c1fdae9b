// Animated WebP without loss, written chunk by chunk: no more than one frame's bytes are held.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "video/video.h"

namespace tessera {

// Of each frame only the rectangle that differs from the frame before is stored; the video is shown
// for ever. The comment becomes the description of an XMP packet. Times are whole milliseconds.
// Errors as VideoWriter's; E_VIDEO_SIZE also for a file of more than 4 GiB, E_VIDEO_TIME for frames
// that stay less than a millisecond or longer than 2^24 of them.
class WebpWriter {
 public:
  // `sink` outlives the writer.
  WebpWriter(VideoSink& sink, const VideoFormat& format);
  ~WebpWriter();
  WebpWriter(const WebpWriter&) = delete;
  WebpWriter& operator=(const WebpWriter&) = delete;

  // rgb [height, width, 3] u8, on the screen from `ticks` on.
  void put(std::span<const std::uint8_t> rgb, std::int64_t ticks);
  // Ends the file; the last frame stays until `end_ticks`.
  void finish(std::int64_t end_ticks);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera
