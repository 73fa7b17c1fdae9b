// Videos as captioning reads them: the scenes of a file, and the frames of one scene prepared for a
// model. Frames stream through, one at a time, from the confined process; what is kept of a video is
// 8 bytes a frame, the times, and the prepared frames.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/families/describe_spec.h"
#include "video/cuts/cut_finder.h"
#include "video/cuts/fingerprint.h"
#include "video/frame_reader.h"
#include "vision/image/video_preprocess.h"

namespace tessera {

// What is known of a video once it was read through.
struct VideoIndex {
  std::filesystem::path file;
  VideoInfo info;
  std::vector<std::int64_t> times;  // of all frames, in ticks, growing

  // When a frame begins, in seconds; frame `times.size()` is the end of the video, which is one
  // frame after the last one's beginning.
  double seconds_at(std::size_t frame) const;
};

// Frames [first, end) of a video.
struct VideoScene {
  std::shared_ptr<const VideoIndex> video;
  std::size_t first = 0, end = 0;
  std::optional<ImageFingerprint> print = {};  // of its first frame, where that was asked for
};

enum class ScenePrints : std::uint8_t { kNo, kYes };

// Which frames of a scene are shown, in the place of the family's own choice.
struct VideoChoice {
  std::optional<double> rate;          // frames a second
  std::optional<std::int64_t> frames;  // at most
  // Rows of a prompt that frames may take where their number is not given; 0 = any.
  std::int64_t rows = 0;
};

// Reads a video through and cuts it into scenes; `stop` is asked between frames and ends the reading
// early, with nothing. Error kGeneral, naming the file: those of FrameReader, E_VIDEO_FRAMES for a
// video without any.
std::vector<VideoScene> find_scenes(const std::filesystem::path& file, const CutSettings& cuts,
                                   const std::function<bool()>& stop,
                                   ScenePrints prints = ScenePrints::kNo);

// The numbers of the frames of a scene that a model of this family is shown, ascending; a number
// may stand twice where the family's rule asks for more frames than there are.
VideoFrames choose_frames(const VideoScene& scene, const FrameSampling& family,
                         const VideoChoice& choice);

// The same, but fewer where the number is not given and they would take more than `choice.rows`;
// one at least. Error kGeneral as plan_video().
VideoFrames fitting_frames(const VideoScene& scene, const DescribeSpec& spec, VideoChoice choice);

// Those frames as one prepared image for each of `policies`, read in one pass.
// Error kGeneral, naming the file.
std::vector<PreprocessedImage> prepare_scene(const VideoScene& scene, const VideoFrames& frames,
                                               const std::vector<const VideoPolicy*>& policies);

}  // namespace tessera
