// Clips as captioning reads them: the scenes of a file, and the frames of one scene prepared for a
// model. Frames stream through, one at a time, from the confined process; what is kept of a clip is
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
#include "video/frame_reader.h"
#include "vision/image/clip_preprocess.h"

namespace tessera {

// What is known of a clip once it was read through.
struct ClipIndex {
  std::filesystem::path file;
  VideoInfo info;
  std::vector<std::int64_t> times;  // of all frames, in ticks, growing

  // When a frame begins, in seconds; frame `times.size()` is the end of the clip, which is one
  // frame behind the last one's beginning.
  double seconds_at(std::size_t frame) const;
};

// Frames [first, end) of a clip.
struct ClipScene {
  std::shared_ptr<const ClipIndex> clip;
  std::size_t first = 0, end = 0;
};

// Which frames of a scene are shown, in the place of the family's own choice.
struct ClipChoice {
  std::optional<double> rate;          // frames a second
  std::optional<std::int64_t> frames;  // at most
  // Rows of a prompt that frames may take where their number is not given; 0 = any.
  std::int64_t rows = 0;
};

// Reads a clip through and cuts it into scenes; `stop` is asked between frames and ends the reading
// early, with nothing. Error kGeneral, naming the file: those of FrameReader, E_VIDEO_FRAMES for a
// clip without any.
std::vector<ClipScene> find_scenes(const std::filesystem::path& file, const CutSettings& cuts,
                                   const std::function<bool()>& stop);

// The numbers of the frames of a scene that a model of this family is shown, ascending; a number
// may stand twice where the family's rule asks for more frames than there are.
ClipFrames choose_frames(const ClipScene& scene, const FrameSampling& family,
                         const ClipChoice& choice);

// The same, but fewer where the number is not given and they would take more than `choice.rows`;
// one at least. Error kGeneral as plan_clip().
ClipFrames fitting_frames(const ClipScene& scene, const DescribeSpec& spec, ClipChoice choice);

// Those frames as one prepared picture for each of `policies`, read in one pass.
// Error kGeneral, naming the file.
std::vector<PreprocessedPicture> prepare_scene(const ClipScene& scene, const ClipFrames& frames,
                                               const std::vector<const ClipPolicy*>& policies);

}  // namespace tessera
