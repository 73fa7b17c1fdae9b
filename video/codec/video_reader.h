// Reading of strangers' videos with FFmpeg's libraries: mp4/mov, matroska/webm and avi, chosen by
// their first bytes and never by a name. Linked into the confined process only; the program asks it
// through video/frame_reader.h.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "video/video.h"

namespace tessera {

// What the first 16 bytes say: "mp4", "matroska", "avi", or empty.
std::string_view sniff_video(std::span<const std::uint8_t> start);

// For a process that does nothing else: FFmpeg is silent, asks the system nothing later, and
// allocates no piece over `max_bytes`.
void settle_video_codecs(std::size_t max_bytes);

// One video. Errors, all of kind kGeneral, with the stream and the frame as place:
//   E_VIDEO_FILE    empty
//   E_VIDEO_FORMAT  not one of the containers, or one that cannot be opened
//   E_VIDEO_STREAM  no video in it (sound only, a cover image only)
//   E_VIDEO_CODEC   no decoder for its video
//   E_VIDEO_SIZE    a side, the area or the number of frames breaks a limit; another size midway
//   E_VIDEO_RATE    more frames a second than the limit
//   E_VIDEO_TIME    times that go backwards or stand still, or none at all
//   E_VIDEO_CUT     the file ends before the video does
//   E_VIDEO_DATA    damaged, without any frame, or referring to frames that are missing: a frame
//                   that was mended by drafting is never given
// What is before a cut or damage is given first, as far as nothing can be missing between. An error
// of next() comes again with every next(), until frame_at() or scan() go to another place; they
// may succeed.
//
// Rules for times: an empty packet shows the frame before it longer, and is none of its own. AVI,
// and packets without a time of showing: the n-th frame shown has the n-th smallest time of
// decoding. A time that is no later than that of the frame before is an error.
class VideoReader {
 public:
  // `bytes` outlives the reader.
  VideoReader(FileBytes& bytes, const VideoLimits& limits);
  ~VideoReader();
  VideoReader(VideoReader&&) noexcept;
  VideoReader& operator=(VideoReader&&) noexcept;

  const VideoInfo& info() const;
  // The next frame in order of time; nullopt after the last one.
  std::optional<VideoFrame> next();
  // The frame that is on the screen at that moment: the last that does not begin later, the first
  // one before all, exactly as next() from the start gives it. next() goes on after it.
  std::optional<VideoFrame> frame_at(std::int64_t ticks);
  // Times of all frames, in order, from the container's packets: nothing is decoded. next() begins
  // again.
  std::vector<std::int64_t> scan();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera
