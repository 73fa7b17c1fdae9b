// The program's way to strangers' videos: a confined process demuxes and decodes, asks for the
// file's bytes piece by piece and gives frames back, one at a time. Memory does not grow with the
// length of a video, but for 8 bytes a frame where scan() is asked for.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "video/video_process.h"
#include "video/video.h"

namespace tessera {

struct FrameReaderOptions {
  VideoLimits limits;
  VideoProcessOptions process;
};

// Errors of kind kGeneral that name the file: those of VideoReader (video/codec/video_reader.h) and
// of VideoProcess, E_VIDEO_MEMORY where the process's memory does not last, and those of reading the
// file, E_IO_CHANGED where it changes meanwhile. Where the process died or spoke nonsense, it is
// gone and every later call ends with that error.
class FrameReader {
 public:
  explicit FrameReader(const std::filesystem::path& file, FrameReaderOptions options = {});
  ~FrameReader();
  FrameReader(FrameReader&&) noexcept;
  FrameReader& operator=(FrameReader&&) noexcept;

  const VideoInfo& info() const;
  // As the functions of VideoReader.
  std::optional<VideoFrame> next();
  std::optional<VideoFrame> frame_at(std::int64_t ticks);
  std::vector<std::int64_t> scan();
  std::string confinement() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera
