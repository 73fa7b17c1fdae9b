// Which visual tokens an image becomes, in the order in which the language model reads them, from
// the plan of its preprocessing. Text markers between them are the prompt's business.
#pragma once

#include "vision/image/preprocess.h"
#include "vision/pruning/visual_block.h"

namespace tessera {

struct VisualLayout {
  // position: number of the token in the image, or (view, row, column) for a model of three axes.
  // Of a video, `frame` and `tile` are the number of the view: a frame, or the frames of one patch.
  VisualBlock block;
  VisualBlock encoder;  // a token a patch of each view, class tokens included; padding is flagged
  bool resampled = false;  // tokens of the map, or of frames, were resized after the projector
  // Of each token: place on the axes after the first place of the image. As `position`, but for
  // videos, whose time ids may go by the clock and then stand twice.
  std::vector<std::array<std::int32_t, 3>> offsets;
};

struct LayoutFacts {
  bool three_axes = false;
  bool class_token = false;          // of the encoder
  bool class_token_feature = false;  // it is a visual token too
  std::int64_t merge = 1;            // patches a side that become one token
};

VisualLayout layout_of(const PreprocessPlan& plan, const LayoutFacts& facts);

}  // namespace tessera
