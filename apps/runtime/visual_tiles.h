// An image's visual tokens as tiles that a viewer draws over it: which were kept, and how each
// scored.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "vision/image/preprocess.h"
#include "vision/pruning/visual_block.h"

namespace tessera {

// One tile of visual tokens as a pruner saw it. Row by row; score is relative, 0..1, NaN = none.
struct VisualTile {
  std::int64_t rows = 0, columns = 0;
  double left = 0, top = 0, width = 1, height = 1;  // where on the image, in shares of it
  std::vector<float> scores;
  std::vector<std::uint8_t> kept;  // 1 = kept
};

// What the one view of an image shows, in shares of it: beyond 0 and 1 it is padded.
struct ShownPart {
  double left = 0, top = 0, width = 1, height = 1;
};
// Of an image that is shown in one view; all of it elsewhere.
ShownPart shown_part(const PreprocessPlan& plan);

// `whole`: the block before pruning; `kept`: what is left of it; `scores`: of each token of
// `whole`, or empty. Tokens that lie on no tile are left out.
std::vector<VisualTile> visual_tiles(const VisualBlock& whole, const VisualBlock& kept,
                                     std::span<const float> scores, const ShownPart& part = {});

}  // namespace tessera
