// Which frames of a clip a model sees: the rules of the published processors, as indices into the
// list of frames in order of time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "video/video.h"

namespace tessera {

enum class FrameRule : std::uint8_t {
  kUniform,  // `frames` of them, evenly from first to last, truncated (LLaVA-NeXT-Video, OneVision)
  kRate,     // the one on the screen every 1 / `rate` s, thinned evenly past `frames` (Video-XL-2)
  kQwen,     // qwen-vl-utils: an even number by `rate`, 4 to `frames`, rounded
};

struct FrameSampling {
  FrameRule rule = FrameRule::kUniform;
  std::int64_t frames = 32;  // at most; kUniform: exactly, with repeats in shorter clips
  double rate = 2.0;         // frames a second; kRate and kQwen
};

inline constexpr std::size_t kMostSamples = std::size_t{1} << 20;

// `times`: of all frames, in ticks, growing (FrameReader::scan). kQwen counts seconds as frames
// over the file's rate, as the processor does; 0/1 stands for the mean rate of `times`. expects()
// at least one frame, `frames` >= 1 (kQwen >= 4) and a positive rate. Error kGeneral,
// E_VIDEO_SAMPLES, before anything of that size is allocated: more than kMostSamples indices, a
// rate that is not finite or that makes more moments of the clip's length than doubles count.
std::vector<std::size_t> sample_frames(const FrameSampling& sampling,
                                       std::span<const std::int64_t> times, const VideoInfo& info);

}  // namespace tessera
