// Feature rows as a map of places that is brought to another size, as LLaVA-OneVision does with
// images of many tiles and with every frame of a video.
#pragma once

#include <cstdint>

#include "engine/core/tensor.h"

namespace tessera {

struct MapSize {
  std::int64_t rows = 0, cols = 0;

  std::int64_t places() const { return rows * cols; }
  bool operator==(const MapSize&) const = default;
};

// Bilinear with half-pixel centres and no antialiasing (`interpolate` of PyTorch, align_corners
// false). x [from places, C] f32 in host memory, raster order; out [to places, C]. expects(): both
// sizes have places, x has those of `from`.
Tensor resize_map(ConstTensorView x, MapSize from, MapSize to);

// The size to which LLaVA-OneVision brings the unpadded map of an image's tiles, `side` places a
// side each: with t = sqrt(places / (max_tiles side^2)) beyond 1.1, both sides over t, rounded
// down; else as it is.
MapSize onevision_map_size(MapSize map, std::int64_t side, std::int64_t max_tiles = 9);

}  // namespace tessera
