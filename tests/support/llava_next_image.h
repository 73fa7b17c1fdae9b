// The visual tokens of an image as LLaVA-NeXT's authors tile it.
#pragma once

#include "apps/runtime/tile_grid.h"
#include "engine/families/registry.h"
#include "vision/image/preprocess.h"
#include "vision/pruning/visual_block.h"

namespace tessera {

inline VisualBlock llava_next_image(std::int64_t width, std::int64_t height,
                                      Padding padding = Padding::kDropped) {
  return llava_next_block(
      tile_grid_of(plan_preprocess(preprocess_policy("llava-next-authors"), width, height)),
      padding);
}

}  // namespace tessera
