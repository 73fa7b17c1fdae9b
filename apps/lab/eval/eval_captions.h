// What a captioner says about true renders of held-out scenes, marked attribute by attribute.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/lab/scorer/attributes.h"
#include "apps/runtime/describe_task.h"

namespace tessera {

struct EvalCaptionsRequest {
  DescribeOptions options;
  std::string prompt = "Describe the picture.";
  std::int64_t images = 200;
  std::uint64_t scene_seed = 1000;  // scenes 0, 1, ... of the split
  SceneSplit split = SceneSplit::kVal;
  int size = 96;  // pixels a side of the renders
};

struct EvalCaptions {
  std::string model;
  std::vector<Marks> marks;     // by image; a text that is no canonical caption earns nothing
  std::int64_t unreadable = 0;  // such texts
  // By image: tokens, and seconds.
  std::vector<double> kept, total, encode, select, first, prefill;
  Image first_image;
  std::vector<VisualBlock> first_kept;  // of the first image
  StreamTimes times;
  double seconds = 0;
};

// Error as DescribeTask; a caption that fails is thrown.
EvalCaptions eval_captions(const EvalCaptionsRequest& request);

// The image, enlarged, with every patch of the kept tokens clear and all others dark. For
// images of one view.
Image kept_patches(const Image& image, const std::vector<VisualBlock>& kept);

}  // namespace tessera
