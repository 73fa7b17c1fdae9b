// Frames out, whatever becomes of them: a video in one file, or a numbered sequence of PNG files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "engine/core/publish.h"
#include "video/video_process.h"
#include "video/video.h"

namespace tessera {

// put(), finish(), finish_whole_frames() and frames() as FrameWriter's (video/frame_writer.h).
class FrameSink {
 public:
  virtual ~FrameSink() = default;  // what was not finished leaves nothing after
  virtual void put(std::span<const std::uint8_t> rgb, std::int64_t ticks) = 0;
  virtual bool finish(std::int64_t end_ticks, Publish publish = Publish::kReplace,
                      Sync sync = Sync::kOn) = 0;
  virtual bool finish_whole_frames(std::int64_t end_ticks, Publish publish = Publish::kReplace,
                                   Sync sync = Sync::kOn) = 0;
  virtual std::uint64_t frames() const = 0;
  virtual std::string codec() const = 0;  // "ffv1" ..., "png"
};

// Chosen by the name. ".mp4", ".webm", ".mkv", ".webp" and ".gif" are FrameWriter's (format's own
// container is not looked at). "name-%04d.png" (one %d or %0Nd), a folder that is there, and a name
// that ends with "/" are sequences: frame 1 is "name-0001.png", of a folder "0001.png". Error
// kUsage, E_VIDEO_NAME, for others.
//
// A sequence is written by this process, RGB bit for bit, sides of 1 to 16384. Each file carries
// the comment and its time as text ("Comment"; "Time": "3/8 s", exact, since the first frame); how
// long the last frame stays is nowhere. Files stay in a hidden folder until finish() and are named
// then: a folder that is new, at once; files in a folder that is there, one after the other, and
// files of an older, longer sequence stay next to them. After a put() that failed
// finish_whole_frames() names the whole frames before it. Errors: kGeneral E_VIDEO_SIZE,
// E_VIDEO_TIME, E_VIDEO_EMPTY, E_VIDEO_UNFINISHED, kStorage.
std::unique_ptr<FrameSink> open_frame_sink(const std::filesystem::path& path,
                                           const VideoFormat& format,
                                           const VideoProcessOptions& options = {});

// Whether open_frame_sink() writes PNG files for that name.
bool is_png_sequence(const std::filesystem::path& path);

}  // namespace tessera
