// 2-D convolution as a sum of matrix products: the tile of the linear layers reads its rows, which
// are neighbouring pixels, at an offset per kernel tap. The input of a strip of output rows is
// copied once with its padding, affine map, swish and upsampling applied, so that no such image
// stands in memory as a whole.
#include <algorithm>
#include <array>
#include <cstring>

#include "engine/backend/cpu/cpu_backend.h"
#include "engine/backend/cpu/panel_storage.h"
#include "engine/core/index.h"
#include "engine/ops/conv2d.h"

namespace tessera::cpu {

namespace {

constexpr int kMaxRuns = 16;                                  // kernel taps summed in one chain
constexpr std::int64_t kStripFloats = std::int64_t{1} << 20;  // 4 MB of input a strip, if it can
constexpr std::int64_t kAllStripsFloats = std::int64_t{5} << 20;  // 20 MB for all workers' strips
constexpr std::int64_t kPanelFloats = kBlock * kLanes;            // one expanded panel block
constexpr std::int64_t kPixels =
    384;  // output pixels that meet all weights while they are in cache

struct Geometry {
  std::int64_t out_rows, out_columns;
  std::int64_t in_columns;  // of the strip: upsampled and padded
  std::int64_t strip_rows;  // output rows of one task
  std::int64_t strips;
  std::int64_t panels, groups;
  bool direct;               // the input is read where it is
  std::size_t strip_floats;  // of one worker's copy

  std::int64_t input_rows(const Conv2dArgs& args, std::int64_t rows) const {
    return (rows - 1) * args.stride + args.weight->kh;
  }
};

Geometry plan(const Conv2dArgs& args, int threads) {
  const ConvWeight& weight = *args.weight;
  Geometry g{};
  const std::int64_t height = args.in.shape[0] * args.upsample + args.pad_top + args.pad_bottom;
  g.in_columns = args.in.shape[1] * args.upsample + args.pad_left + args.pad_right;
  g.out_rows = (height - weight.kh) / args.stride + 1;
  g.out_columns = (g.in_columns - weight.kw) / args.stride + 1;
  g.panels = divide_up(weight.c_out, kLanes);
  g.direct = args.scale.empty() && !args.swish && args.upsample == 1 && args.pad_top == 0 &&
             args.pad_left == 0 && args.pad_bottom == 0 && args.pad_right == 0;
  const std::int64_t row_floats = g.in_columns * weight.c_in;
  const std::int64_t share = std::min(kStripFloats, kAllStripsFloats / threads);
  const std::int64_t fitting = (share / row_floats - weight.kh) / args.stride + 1;
  const std::int64_t fair = divide_up(g.out_rows, 3 * threads);
  g.strip_rows = std::max<std::int64_t>(1, std::min(fitting, fair));
  g.strips = divide_up(g.out_rows, g.strip_rows);
  g.groups = std::clamp<std::int64_t>(divide_up(2 * threads, g.strips), 1, divide_up(g.panels, 2));
  g.strip_floats = g.direct ? 0 : to_size(g.input_rows(args, g.strip_rows) * row_floats);
  return g;
}

// Input rows [first, first + rows) in upsampled, padded coordinates, ready to be multiplied.
void fill_strip(const Conv2dArgs& args, const Geometry& g, const Kernels& kernels,
                std::int64_t first, std::int64_t rows, float* strip) {
  const std::int64_t channels = args.weight->c_in;
  const std::int64_t width = args.in.shape[1];
  const std::int64_t row_floats = g.in_columns * channels;
  const float* scale = args.scale.empty() ? nullptr : args.scale.f32();
  const float* shift = args.shift.empty() ? nullptr : args.shift.f32();
  for (std::int64_t r = 0; r < rows; ++r) {
    float* to = strip + r * row_floats;
    const std::int64_t y = first + r - args.pad_top;
    if (y < 0 || y >= args.in.shape[0] * args.upsample) {
      std::memset(to, 0, to_size(row_floats) * sizeof(float));
      continue;
    }
    const auto pad_left = to_size(args.pad_left * channels);
    const auto pad_right = to_size(args.pad_right * channels);
    std::memset(to, 0, pad_left * sizeof(float));
    std::memset(to + row_floats - pad_right, 0, pad_right * sizeof(float));
    float* pixels = to + pad_left;
    if (args.upsample == 2 && r > 0 && y % 2 != 0) {
      std::memcpy(to, to - row_floats, to_size(row_floats) * sizeof(float));
      continue;
    }
    const float* from = args.in.f32() + y / args.upsample * width * channels;
    if (args.upsample == 1) {
      kernels.affine(from, scale, shift, args.swish, pixels, channels, width);
      continue;
    }
    // The row goes to the second half of its place, then each pixel is doubled from the left; the
    // reads stay ahead of the writes.
    float* half = pixels + width * channels;
    kernels.affine(from, scale, shift, args.swish, half, channels, width);
    for (std::int64_t x = 0; x < width; ++x) {
      const auto bytes = to_size(channels) * sizeof(float);
      std::memmove(pixels + 2 * x * channels, half + x * channels, bytes);
      std::memcpy(pixels + (2 * x + 1) * channels, pixels + 2 * x * channels, bytes);
    }
  }
}

struct Strip {
  const float* pixels;     // first input row of the strip, in_columns * c_in floats a row
  std::int64_t row, rows;  // output rows
  std::int64_t panel, panels;
};

// One block of inputs (a few taps, or 256 channels of one) against the panels of a strip.
void multiply_block(const Conv2dArgs& args, const Geometry& g, const Kernels& kernels,
                    const Strip& strip, TileArgs& tile, std::int64_t block, float* expanded) {
  const ConvWeight& weight = *args.weight;
  const PanelStorage& storage = panel_storage(weight.storage);
  const std::int64_t inputs = weight.kh * weight.kw * weight.c_in;
  const std::int64_t count = tile.runs * tile.run_length;
  const std::int64_t tiles = divide_up(g.out_columns, kernels.tile_rows);
  // Scratch holds two expanded panels, whatever the width of a narrow tile.
  const std::int64_t widest = storage.expand != nullptr ? 2 : 16;
  const std::int64_t width =
      std::min<std::int64_t>(kernels.tile_panels[divide_up(g.out_columns, tiles)], widest);
  const bool last = block + count == inputs;
  for (std::int64_t panel = strip.panel; panel < strip.panel + strip.panels; panel += width) {
    const std::int64_t panels = std::min(width, strip.panel + strip.panels - panel);
    const std::byte* const stored =
        weight.packed.view().raw() + to_size(panel) * storage.bytes(inputs) + storage.bytes(block);
    tile.b = stored;
    tile.b_stride = storage.type->blocks(inputs) * kLanes;
    if (storage.expand != nullptr) {
      for (std::int64_t p = 0; p < panels; ++p) {
        storage.expand(kernels, stored + to_size(p) * storage.bytes(inputs),
                       expanded + p * kPanelFloats, count);
      }
      tile.b = expanded;
      tile.b_stride = kPanelFloats;
    }
    tile.columns = std::min<std::int64_t>(panels * kLanes, weight.c_out - panel * kLanes);
    tile.bias = last && !args.bias.empty() ? args.bias.f32() + panel * kLanes : nullptr;
    for (std::int64_t r = 0; r < strip.rows; ++r) {
      const float* in = strip.pixels + r * args.stride * g.in_columns * weight.c_in;
      float* out = args.out.f32() + (strip.row + r) * g.out_columns * weight.c_out + panel * kLanes;
      for (std::int64_t t = 0; t < tiles; ++t) {
        const std::int64_t begin = g.out_columns * t / tiles;
        const std::int64_t end = g.out_columns * (t + 1) / tiles;
        tile.a = in + begin * tile.a_stride;
        tile.out = out + begin * weight.c_out;
        kernels.tile_f32(tile, narrow<int>(end - begin), narrow<int>(panels));
      }
    }
  }
}

void multiply_strip(const Conv2dArgs& args, const Geometry& g, const Kernels& kernels,
                    const Strip& strip, float* expanded) {
  const ConvWeight& weight = *args.weight;
  const std::int64_t taps = weight.kh * weight.kw;
  const std::int64_t taps_at_once = std::clamp<std::int64_t>(kBlock / weight.c_in, 1, kMaxRuns);
  std::array<std::int64_t, kMaxRuns> offsets{};
  TileArgs tile;
  tile.a_stride = args.stride * weight.c_in;
  tile.out_stride = weight.c_out;
  tile.run_offsets = offsets.data();
  tile.first = !args.accumulate;
  for (std::int64_t tap = 0; tap < taps; tap += taps_at_once) {
    tile.runs = narrow<int>(std::min(taps_at_once, taps - tap));
    for (std::int64_t c = 0; c < weight.c_in; c += kBlock) {
      tile.run_length = std::min<std::int64_t>(kBlock, weight.c_in - c);
      for (int run = 0; run < tile.runs; ++run) {
        const std::int64_t y = (tap + run) / weight.kw;
        const std::int64_t x = (tap + run) % weight.kw;
        nth(offsets, run) = (y * g.in_columns + x) * weight.c_in + c;
      }
      multiply_block(args, g, kernels, strip, tile, tap * weight.c_in + c, expanded);
      tile.first = false;
    }
  }
}

void conv2d(CpuBackend& cpu, const Conv2dArgs& args) {
  ThreadPool& pool = cpu.threads();
  const Geometry g = plan(args, pool.threads());
  cpu.ensure_scratch(g.strip_floats + 2 * kPanelFloats);
  const std::int64_t row_floats = g.in_columns * args.weight->c_in;
  pool.parallel_for(g.strips * g.groups, 1, [&](std::int64_t task, std::int64_t end, int worker) {
    for (; task < end; ++task) {
      Strip strip{};
      strip.row = task / g.groups * g.strip_rows;
      strip.rows = std::min(g.strip_rows, g.out_rows - strip.row);
      const std::int64_t pairs = divide_up(g.panels, 2);
      strip.panel = pairs * (task % g.groups) / g.groups * 2;
      strip.panels = std::min(pairs * (task % g.groups + 1) / g.groups * 2, g.panels) - strip.panel;
      float* expanded = cpu.scratch(worker);
      float* copy = expanded + 2 * kPanelFloats;
      if (g.direct) {
        strip.pixels = args.in.f32() + strip.row * args.stride * row_floats;
      } else {
        fill_strip(args, g, cpu.kernels(), strip.row * args.stride, g.input_rows(args, strip.rows),
                   copy);
        strip.pixels = copy;
      }
      const std::int64_t last = strip.row + strip.rows;
      const std::int64_t at_once = std::max<std::int64_t>(1, kPixels / g.out_columns);
      for (; strip.row < last; strip.row += strip.rows) {
        strip.rows = std::min(at_once, last - strip.row);
        multiply_strip(args, g, cpu.kernels(), strip, expanded);
        strip.pixels += strip.rows * args.stride * row_floats;
      }
    }
  });
}

}  // namespace

std::size_t CpuBackend::conv_scratch_bytes(const Conv2dArgs& args) const {
  const int workers = pool_.threads();
  const Geometry g = plan(args, workers);
  return (g.strip_floats + 2 * kPanelFloats + 64) * sizeof(float) * to_size(workers);
}

void add_conv2d_ops(OpTable& table) { table.add<conv2d>(); }

}  // namespace tessera::cpu
