// Which frames of a video a model sees: the rules of the published processors, as indices into the
// list of frames in order of time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/spec/frame_sampling.h"
#include "video/video.h"

namespace tessera {

inline constexpr std::size_t kMaxSamples = std::size_t{1} << 20;

// `times`: of all frames, in ticks, growing (FrameReader::scan). kQwen counts seconds as frames
// over the file's rate, as the processor does; 0/1 stands for the mean rate of `times`. expects()
// at least one frame, `frames` >= 1 (kQwen >= 4) and a positive rate. Error kGeneral,
// E_VIDEO_SAMPLES, before anything of that size is allocated: more than kMaxSamples indices, a
// rate that is not finite or that makes more moments of the video's length than doubles count.
std::vector<std::size_t> sample_frames(const FrameSampling& sampling,
                                       std::span<const std::int64_t> times, const VideoInfo& info);

}  // namespace tessera
