// From the chosen frames of a video to what a vision encoder sees: every frame is prepared as a
// image without tiles, and frames become views, one each or several where the encoder's patches
// are deep in time. Memory is that of the chosen frames, whatever the length of the video.
//
// Sources: Qwen2VLVideoProcessor, LlavaOnevisionVideoProcessor and SmolVLMVideoProcessor of
// transformers, with the Pillow resizing of images in the place of torchvision's (the two differ
// by a level here and there), and qwen-vl-utils for the pixels of many frames.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "vision/image/preprocess.h"

namespace tessera {

// The frames that are shown, as `seconds`, `numbers` and `length` of VideoPlan have them.
struct VideoFrames {
  std::vector<double> seconds;
  std::vector<std::int64_t> numbers;
  double length = 0;
  double rate = 2;  // of the shown frames, a second
};

// `width` and `height` of a frame, in pixels. Error kGeneral as plan_preprocess(). expects() a
// frame, as many seconds as numbers, and a policy that gives one view.
PreprocessPlan plan_video(const VideoPolicy& policy, std::int64_t width, std::int64_t height,
                         const VideoFrames& frames);

// Takes frames one after the other.
class VideoPreprocessor {
 public:
  VideoPreprocessor(const VideoPolicy& policy, std::int64_t width, std::int64_t height,
                   const VideoFrames& frames);

  // The next frame, of the plan's size.
  void add(const DecodedImage& frame);
  // expects() that all frames were added. The last view is filled with its last frame.
  PreprocessedImage finish();

 private:
  PreprocessPolicy policy_;  // of a frame, with the pixels that the video leaves it
  PreprocessPlan frame_;     // of one frame
  PreprocessedImage out_;
  std::size_t added_ = 0;
};

}  // namespace tessera
