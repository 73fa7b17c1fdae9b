// An image's visual tokens as tiles that a viewer draws over it: which were kept, and how each
// scored.
#pragma once

#include <span>
#include <vector>

#include "apps/studio/snapshot.h"
#include "vision/pruning/visual_block.h"

namespace tessera {

// `whole`: the block before pruning; `kept`: what is left of it; `scores`: of each token of
// `whole`, or empty. Tokens that lie on no tile are left out.
std::vector<VisualTile> visual_tiles(const VisualBlock& whole, const VisualBlock& kept,
                                     std::span<const float> scores);

}  // namespace tessera
