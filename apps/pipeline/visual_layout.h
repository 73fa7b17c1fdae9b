// Which visual tokens a picture becomes, in the order in which the language model reads them, from
// the plan of its preprocessing. Text markers between them are the prompt's business.
#pragma once

#include "vision/image/preprocess.h"
#include "vision/pruning/visual_block.h"

namespace tessera {

struct VisualLayout {
  // position: number of the token in the picture, or (time, row, column) for a model of three axes.
  VisualBlock block;
  VisualBlock encoder;  // a token a patch of each view, class tokens included; padding is flagged
  bool resampled = false;  // tokens of the map were resized behind the projector
};

struct LayoutFacts {
  bool three_axes = false;
  bool class_token = false;          // of the encoder
  bool class_token_feature = false;  // it is a visual token too
  std::int64_t merge = 1;            // patches a side that become one token
};

VisualLayout layout_of(const PreprocessPlan& plan, const LayoutFacts& facts);

}  // namespace tessera
