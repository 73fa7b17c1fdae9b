// Integer work of the encoder's input: grids, row orders, windows, buckets, patches.
#include "vision/encoder/vit_grid.h"

#include <algorithm>
#include <string>

#include "engine/core/index.h"

namespace tessera {

namespace {

[[noreturn]] void refuse(std::string expected, const Shape& found) {
  throw Error{{.kind = ErrorKind::kUsage,
               .code = "E_VIT_PIXELS",
               .where = "image of the encoder",
               .expected = std::move(expected),
               .found = found.to_string()}};
}

std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace

VitGrid vit_grid(const VitSpec& spec, const Shape& pixels, std::int64_t filled_height,
                 std::int64_t filled_width) {
  const bool video = pixels.rank() == 4;
  if (pixels.rank() != 3 && !video) refuse("pixels [3, H, W] or [T, 3, H, W]", pixels);
  const int axis = video ? 1 : 0;
  const std::int64_t height = pixels[axis + 1];
  const std::int64_t width = pixels[axis + 2];
  const std::int64_t step = spec.patch * spec.merge;
  if (pixels[axis] != 3 || height < step || width < step) {
    refuse("3 channels and sides of at least " + std::to_string(step), pixels);
  }
  if (spec.positions == VitPositions::kRotary2d && (height % step != 0 || width % step != 0)) {
    refuse("sides that are multiples of " + std::to_string(step), pixels);
  }
  VitGrid grid;
  grid.rows = height / spec.patch;
  grid.cols = width / spec.patch;
  if (video) {
    if (pixels[0] < 1 || pixels[0] % spec.frames != 0 || (spec.frames == 1 && pixels[0] != 1)) {
      refuse(spec.frames == 1 ? "one frame"
                              : "a multiple of " + std::to_string(spec.frames) + " frames",
             pixels);
    }
    grid.times = pixels[0] / spec.frames;
  }
  if (spec.positions == VitPositions::kLearned &&
      (grid.rows != spec.grid || grid.cols != spec.grid)) {
    refuse("a square of " + std::to_string(spec.grid) + " patches of " +
               std::to_string(spec.patch) + " pixels a side",
           pixels);
  }
  expects(
      filled_height >= 0 && filled_height <= height && filled_width >= 0 && filled_width <= width,
      "the filled part lies in the image");
  const auto filled = [&](std::int64_t pixels_there, std::int64_t patches) {
    return pixels_there == 0 ? patches : std::min(patches, divide_up(pixels_there, spec.patch));
  };
  grid.filled_rows = filled(filled_height, grid.rows);
  grid.filled_cols = filled(filled_width, grid.cols);
  return grid;
}

namespace {

// Blocks of one frame [block rows, block cols], window by window.
struct BlockOrder {
  struct Block {
    std::int64_t row, col;
    std::int32_t window;
  };
  std::vector<Block> blocks;
  std::int32_t windows = 0;
};

BlockOrder block_order(std::int64_t rows, std::int64_t cols, std::int64_t window) {
  BlockOrder order;
  const std::int64_t high = window > 0 ? window : rows;
  const std::int64_t wide = window > 0 ? window : cols;
  for (std::int64_t top = 0; top < rows; top += high) {
    for (std::int64_t left = 0; left < cols; left += wide) {
      for (std::int64_t row = top; row < std::min(rows, top + high); ++row) {
        for (std::int64_t col = left; col < std::min(cols, left + wide); ++col) {
          order.blocks.push_back({row, col, order.windows});
        }
      }
      ++order.windows;
    }
  }
  return order;
}

}  // namespace

std::vector<VitPlace> vit_places(const VitSpec& spec, const VitGrid& grid) {
  const std::int64_t merge = spec.merge;
  const std::int64_t block_cols = grid.cols / merge;
  const BlockOrder order = block_order(grid.rows / merge, block_cols, spec.window);
  std::vector<VitPlace> places;
  places.reserve(to_size(grid.patches() + 1));
  if (spec.class_token) places.push_back({.id = -1});
  for (std::int64_t time = 0; time < grid.times; ++time) {
    for (const BlockOrder::Block& block : order.blocks) {
      for (std::int64_t i = 0; i < merge * merge; ++i) {
        VitPlace place;
        place.time = narrow<std::int32_t>(time);
        place.row = narrow<std::int32_t>(block.row * merge + i / merge);
        place.col = narrow<std::int32_t>(block.col * merge + i % merge);
        place.id = narrow<std::int32_t>(time * grid.rows * grid.cols +
                                        (block.row * block_cols + block.col) * merge * merge + i);
        place.frame_group = place.time;
        place.window_group = place.time * order.windows + block.window;
        place.padding = place.row >= grid.filled_rows || place.col >= grid.filled_cols;
        places.push_back(place);
      }
    }
  }
  return places;
}

namespace {

// Which of `side` equal parts of [0, 1) each of `count` fractions i / count falls into. Fractions
// and boundaries are rounded to f32 where the reference rounds them.
std::vector<std::int32_t> buckets(std::int64_t count, std::int64_t side) {
  std::vector<float> boundaries;
  for (std::int64_t k = 1; k < side; ++k) {
    const double step = 1.0 / to_double(side);
    boundaries.push_back(to_float(step + to_double(k - 1) * step));
  }
  const float step = 1.0f / to_float(count);
  std::vector<std::int32_t> out;
  for (std::int64_t i = 0; i < count; ++i) {
    const float fraction = std::min(to_float(i) * step, 1.0f - 1e-6f);
    const auto after = std::upper_bound(boundaries.begin(), boundaries.end(), fraction);
    out.push_back(narrow<std::int32_t>(after - boundaries.begin()));
  }
  return out;
}

}  // namespace

std::vector<std::int32_t> vit_position_rows(const VitSpec& spec, const VitGrid& grid,
                                            std::span<const VitPlace> places) {
  const std::int32_t first = spec.class_token ? 1 : 0;
  const auto side = narrow<std::int32_t>(spec.grid);
  const bool bucketed = spec.positions == VitPositions::kBuckets;
  const std::vector<std::int32_t> rows = buckets(grid.filled_rows, side);
  const std::vector<std::int32_t> cols = buckets(grid.filled_cols, side);
  std::vector<std::int32_t> out;
  out.reserve(places.size());
  for (const VitPlace& place : places) {
    if (place.id < 0 || (bucketed && place.padding)) {
      out.push_back(0);
    } else if (bucketed) {
      out.push_back(first + nth(rows, place.row) * side + nth(cols, place.col));
    } else {
      out.push_back(first + place.row * side + place.col);
    }
  }
  return out;
}

void vit_patches(const VitSpec& spec, std::span<const VitPlace> places, ConstTensorView pixels,
                 float* out) {
  const bool video = pixels.shape.rank() == 4;
  const int axis = video ? 2 : 1;
  const std::int64_t width = pixels.shape[axis + 1];
  const std::int64_t plane = pixels.shape[axis] * width;
  for (const VitPlace& place : places) {
    if (place.id < 0) continue;
    for (std::int64_t channel = 0; channel < 3; ++channel) {
      for (std::int64_t frame = 0; frame < spec.frames; ++frame) {
        const std::int64_t image = video ? place.time * spec.frames + frame : 0;
        const float* from = pixels.f32() + (image * 3 + channel) * plane +
                            place.row * spec.patch * width + place.col * spec.patch;
        for (std::int64_t y = 0; y < spec.patch; ++y) {
          out = std::copy_n(from + y * width, spec.patch, out);
        }
      }
    }
  }
}

}  // namespace tessera
