// Videos out: frames go to a process that encodes them, its bytes come back and are put into a
// draft next to the target, which gets its name when it is whole and synced. The program itself
// links no encoder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/core/publish.h"
#include "video/video_process.h"
#include "video/video.h"

namespace tessera {

// The container of a file name: ".mp4", ".webm", ".mkv", ".webp", ".gif". Error kUsage,
// E_VIDEO_NAME, for others.
VideoContainer container_of(const std::filesystem::path& path);

// Error kUsage, E_VIDEO_RATE, for a rate that the times of that file cannot keep: GIF's hundredths
// of a second end at 50 frames a second. Sequences of images keep any.
void check_rate(const std::filesystem::path& path, std::int64_t rate);

// The codecs of a container that the libraries of this machine can write, as VideoWriter has them.
std::vector<VideoCodec> codecs_there(VideoContainer container,
                                    const VideoProcessOptions& options = {});

// What the process that writes videos can do, and what confines it ("limits and system calls" ...).
// Errors as VideoProcess.
struct VideoAbilities {
  std::string confinement;
  std::vector<std::pair<VideoContainer, std::vector<VideoCodec>>> codecs;  // every container once
};
VideoAbilities video_abilities(const VideoProcessOptions& options = {});

// Errors: kGeneral as VideoWriter (video/codec/video_writer.h) and VideoProcess; kStorage for the
// file.
class FrameWriter {
 public:
  FrameWriter(const std::filesystem::path& path, const VideoFormat& format,
              const VideoProcessOptions& options = {});
  ~FrameWriter();  // an unfinished video leaves nothing after
  FrameWriter(FrameWriter&&) noexcept;
  FrameWriter& operator=(FrameWriter&&) noexcept;

  VideoCodec codec() const;
  // rgb [height, width, 3] u8, shown from `ticks` on; ticks grow. After an error it takes no more:
  // every later call ends with that error.
  void put(std::span<const std::uint8_t> rgb, std::int64_t ticks);
  // The last frame stays until `end_ticks`. False if kNew and the name is taken: nothing is left.
  // E_VIDEO_EMPTY without frames; E_VIDEO_UNFINISHED where a put() failed: no file gets the name.
  bool finish(std::int64_t end_ticks, Publish publish = Publish::kReplace, Sync sync = Sync::kOn);
  // The same for what an interrupted job has, also after a put() that failed: a video of the frames
  // that were taken before. Fails where the process or the disk is what ended it.
  bool finish_whole_frames(std::int64_t end_ticks, Publish publish = Publish::kReplace,
                           Sync sync = Sync::kOn);
  std::uint64_t frames() const;  // taken so far

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera
