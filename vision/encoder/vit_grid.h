// How an image becomes rows of a vision transformer: which patch stands in which row, where it
// lies in the grid, which rows attend to each other, which row of the position table it takes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/core/tensor.h"
#include "engine/towers/vit_spec.h"

namespace tessera {

// Patches of one image or video.
struct VitGrid {
  std::int64_t times = 1, rows = 0, cols = 0;
  // Patches that hold image; the rest, right and below, is padding. Equal to rows and cols
  // without padding.
  std::int64_t filled_rows = 0, filled_cols = 0;

  std::int64_t patches() const { return times * rows * cols; }
  bool padded() const { return filled_rows != rows || filled_cols != cols; }
};

// The grid of pixels [3, H, W] or [T, 3, H, W]. `filled_height` and `filled_width` are the pixels
// that hold image, 0 = all: a patch with one such pixel is filled. Pixels after the last whole
// patch are not read (384 pixels are 27 patches of 14). Error kUsage (E_VIT_PIXELS) when the
// trained grid does not fit the image, or a rotary encoder's image does not cut into whole
// blocks.
VitGrid vit_grid(const VitSpec& spec, const Shape& pixels, std::int64_t filled_height = 0,
                 std::int64_t filled_width = 0);

// One row of the encoder.
struct VitPlace {
  std::int32_t id = 0;  // number in block order: times, blocks in raster order, raster in a block;
                        // -1 for the class token
  std::int32_t time = 0, row = 0, col = 0;
  std::int32_t image = 0;       // of those encoded together
  std::int32_t frame_group = 0;   // rows with the same number attend to each other in full layers
  std::int32_t window_group = 0;  // ... and in layers with windows
  bool padding = false;
};

// The rows in the order in which the encoder runs them: the class token if there is one, then
// blocks of merge x merge patches, and blocks by windows if the spec has windows (Bai et al. 2025:
// windows in raster order within a frame, those at the right and lower edge smaller).
std::vector<VitPlace> vit_places(const VitSpec& spec, const VitGrid& grid);

// Row of the trained position table for each place (kLearned, kBuckets). Buckets: place i of n
// falls on the trained place that i / n falls into, in f32 as the reference does; padding takes 0.
std::vector<std::int32_t> vit_position_rows(const VitSpec& spec, const VitGrid& grid,
                                            std::span<const VitPlace> places);

// Patch pixels as rows [patches, 3 frames patch patch], columns by (channel, frame, y, x); a still
// fills all frames of a patch. `places` without the class token are the rows. pixels in host f32.
void vit_patches(const VitSpec& spec, std::span<const VitPlace> places, ConstTensorView pixels,
                 float* out);

}  // namespace tessera
