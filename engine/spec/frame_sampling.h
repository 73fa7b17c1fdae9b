// Which frames of a video a model sees, as data of its family; video/frame_sampler.h chooses them.
#pragma once

#include <cstdint>

namespace tessera {

enum class FrameRule : std::uint8_t {
  kUniform,  // `frames` of them, evenly from first to last, truncated (LLaVA-NeXT-Video, OneVision)
  kRate,     // the one on the screen every 1 / `rate` s, thinned evenly past `frames` (Video-XL-2)
  kQwen,     // qwen-vl-utils: an even number by `rate`, 4 to `frames`, rounded
};

struct FrameSampling {
  FrameRule rule = FrameRule::kUniform;
  std::int64_t frames = 32;  // at most; kUniform: exactly, with repeats in shorter videos
  double rate = 2.0;         // frames a second; kRate and kQwen
};

}  // namespace tessera
