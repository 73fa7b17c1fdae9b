// 2-D convolution as a product of pixels and weights that is never laid out: 64 pixels by 64
// channels a block, taps and input channels in order along the sum. What the input is read through
// (padding, affine map, swish, upsampling) is applied once to a strip of rows, which stays in the
// second-level cache, since a kernel of 3 x 3 would apply it nine times for every 64 channels. A
// pixel is one sum in one order. bf16 weights meet pixels rounded to bf16; f32 stays f32. Outside
// the deterministic mode cuDNN takes the sums of a strip where it is found.
#include <algorithm>

#include "engine/backend/cuda/conv2d_kernels.cuh"
#include "engine/backend/cuda/launch.cuh"
#include "engine/backend/cuda/libraries.h"
#include "engine/backend/cuda/packing.h"
#include "engine/ops/conv2d.h"

namespace tessera::cuda {

namespace {

constexpr std::int64_t kScratchMultiple = 256;  // bytes: what lies in scratch begins on them

struct Plan;

// What convolves with a storage type: one row a type (kConvolutions below).
struct Convolutions {
  DType storage;
  std::size_t number;   // bytes of a pixel's channel as the kernels read it
  bool reads_floats;    // pixels that nothing is done to are read where they are
  std::size_t rounded;  // bytes of a sum that the library rounds to the type; 0: sums are f32
  // Output rows' input rows from first_row on, ready for the kernels.
  void (*prepare)(CudaBackend& backend, const Conv2dArgs& args, const Plan& p,
                  std::int64_t first_row, std::int64_t rows, void* out);
  void (*convolve)(CudaBackend& backend, const Strip& s);
};
const Convolutions& convolutions_of(DType storage);

struct Plan {
  std::int64_t columns = 0;  // of the padded, upsampled input
  std::int64_t out_rows = 0, out_columns = 0, channels = 0;
  std::int64_t strip_rows = 0;  // output rows at once
  bool direct = false;          // the input is what the kernels read already
  std::size_t strip_bytes = 0;
  std::size_t sums_bytes = 0;  // of the library's rounded sums, for one strip
};

std::int64_t input_rows(const Conv2dArgs& args, std::int64_t out_rows) {
  return (out_rows - 1) * args.stride + args.weight->kh;
}

// A strip takes half of the second-level cache, so that weights and output find room next to it.
std::int64_t strip_bytes(int device) {
  int cache = 0;
  check(cudaDeviceGetAttribute(&cache, cudaDevAttrL2CacheSize, device),
        "asking a CUDA device for its cache");
  return cache / 2;
}

Plan plan(const Conv2dArgs& args, int device) {
  const ConvWeight& weight = *args.weight;
  const Convolutions& way = convolutions_of(weight.storage);
  Plan p;
  const std::int64_t height = args.in.shape[0] * args.upsample + args.pad_top + args.pad_bottom;
  p.columns = args.in.shape[1] * args.upsample + args.pad_left + args.pad_right;
  p.out_rows = (height - weight.kh) / args.stride + 1;
  p.out_columns = (p.columns - weight.kw) / args.stride + 1;
  p.channels = padded_channels(weight.c_in);
  p.direct = way.reads_floats && args.scale.empty() && !args.swish && args.upsample == 1 &&
             args.pad_top == 0 && args.pad_left == 0 && args.pad_bottom == 0 &&
             args.pad_right == 0 && p.channels == weight.c_in && is_aligned(args.in.data);
  const auto row_bytes = p.columns * p.channels * static_cast<std::int64_t>(way.number);
  const std::int64_t fitting = (strip_bytes(device) / row_bytes - weight.kh) / args.stride + 1;
  p.strip_rows = p.direct ? p.out_rows : std::clamp<std::int64_t>(fitting, 1, p.out_rows);
  if (!p.direct) {
    p.strip_bytes = static_cast<std::size_t>(
        round_up(input_rows(args, p.strip_rows) * row_bytes, kScratchMultiple));
  }
  p.sums_bytes =
      static_cast<std::size_t>(p.strip_rows * p.out_columns * weight.c_out) * way.rounded;
  return p;
}

template <typename T>
void prepare(CudaBackend& backend, const Conv2dArgs& args, const Plan& p, std::int64_t first_row,
             std::int64_t rows, void* out) {
  constexpr int kThreads = 256;
  const Reading reading = {.in = args.in.f32(),
                           .scale = args.scale.empty() ? nullptr : args.scale.f32(),
                           .shift = args.shift.empty() ? nullptr : args.shift.f32(),
                           .height = args.in.shape[0],
                           .width = args.in.shape[1],
                           .c_in = args.weight->c_in,
                           .columns = p.columns,
                           .channels = p.channels,
                           .first_row = first_row,
                           .upsample = args.upsample,
                           .pad_top = args.pad_top,
                           .pad_left = args.pad_left,
                           .swish = args.swish,
                           .by_four = args.weight->c_in % 4 == 0 && is_aligned(args.in.data)};
  const std::int64_t count = rows * p.columns * p.channels / kEight;
  launch(backend, "conv2d: input", {.blocks = divide_up(count, kThreads), .threads = kThreads},
         prepare_strip<T>, reading, count, static_cast<T*>(out));
}

void convolve_tiles(CudaBackend& backend, const char* name, const Strip& s, int threads,
                    std::size_t shared, void (*kernel)(Strip)) {
  launch(backend, name,
         {.blocks = divide_up(s.pixels, kTilePixels),
          .threads = threads,
          .blocks_y = divide_up(s.c_out, kTileChannels),
          .shared = shared},
         kernel, s);
}

void convolve_floats(CudaBackend& backend, const Strip& s) {
  convolve_tiles(backend, "conv2d: f32 weights", s, kFloatThreads,
                 sizeof(float) * kStages * kFloatTile, convolve_f32);
}

void convolve_halves(CudaBackend& backend, const Strip& s) {
  convolve_tiles(backend, "conv2d: bf16 weights", s, kHalfThreads,
                 sizeof(std::uint16_t) * kStages * kHalfTile, convolve_bf16);
}

constexpr Convolutions kConvolutions[] = {
    {DType::kF32, sizeof(float), true, 0, prepare<float>, convolve_floats},
    {DType::kBF16, 2, false, 2, prepare<std::uint16_t>, convolve_halves},
};

const Convolutions& convolutions_of(DType storage) {
  for (const Convolutions& way : kConvolutions) {
    if (way.storage == storage) return way;
  }
  expects(false, "kernels convolve with this storage type");
  return kConvolutions[0];
}

// True where cuDNN did it. Sums that come rounded go through `sums`.
bool convolve_by_library(CudaBackend& backend, const Strip& s, const Convolutions& way,
                         std::int64_t rows, void* workspace, void* sums) {
  const bool rounded = way.rounded != 0;
  PlainConvolution c;
  c.in = s.in;
  c.w = s.w;
  c.out = rounded ? sums : s.out;
  c.factors = way.storage;
  c.rows = static_cast<int>(rows);
  c.columns = static_cast<int>(s.columns);
  c.c_in = s.channels;
  c.c_out = static_cast<int>(s.c_out);
  c.kh = s.kh;
  c.kw = s.kw;
  c.stride = s.stride;
  c.tf32 = backend.options().tf32;
  c.accumulate = s.accumulate && !rounded;
  c.workspace = workspace;
  c.stream = backend.stream();
  if (!backend.libraries().convolve(c)) return false;
  constexpr int kThreads = 256;
  const std::int64_t count = s.pixels * s.c_out;
  if (rounded) {
    launch(backend, "conv2d: sums", {.blocks = divide_up(count, kThreads), .threads = kThreads},
           widen_sums, static_cast<const std::uint16_t*>(sums), s.bias, count, s.c_out,
           s.accumulate, s.out);
  } else if (s.bias != nullptr) {
    launch(backend, "conv2d: bias", {.blocks = divide_up(count, kThreads), .threads = kThreads},
           add_bias, s.bias, count, s.c_out, s.out);
  }
  return true;
}

bool asks_library(const CudaOptions& options, Libraries& libraries) {
  return !options.deterministic && libraries.without_cudnn().empty();
}

std::size_t scratch_bytes(const Plan& p, bool library) {
  return p.strip_bytes + (library ? kLibraryWorkspace + p.sums_bytes : 0);
}

void conv2d(CudaBackend& backend, const Conv2dArgs& args) {
  const Plan p = plan(args, backend.device().index);
  const ConvWeight& weight = *args.weight;
  const Convolutions& way = convolutions_of(weight.storage);
  if (weight.c_out == 0 || !backend.enqueues()) return;
  const bool library = asks_library(backend.options(), backend.libraries());
  auto* memory = static_cast<std::byte*>(backend.scratch(scratch_bytes(p, library)));
  std::byte* prepared = memory + (library ? kLibraryWorkspace : 0);
  std::byte* sums = prepared + p.strip_bytes;
  for (std::int64_t row = 0; row < p.out_rows; row += p.strip_rows) {
    const std::int64_t out_rows = std::min(p.strip_rows, p.out_rows - row);
    const std::int64_t rows = input_rows(args, out_rows);
    if (!p.direct) way.prepare(backend, args, p, row * args.stride, rows, prepared);
    const Strip strip = {.in = p.direct ? args.in.data : prepared,
                         .columns = p.columns,
                         .channels = static_cast<int>(p.channels),
                         .kh = static_cast<int>(weight.kh),
                         .kw = static_cast<int>(weight.kw),
                         .stride = args.stride,
                         .pixels = out_rows * p.out_columns,
                         .out_columns = p.out_columns,
                         .w = weight.packed.view().data,
                         .last_row = padded_rows(weight.c_out) - 1,
                         .bias = args.bias.empty() ? nullptr : args.bias.f32(),
                         .out = args.out.f32() + row * p.out_columns * weight.c_out,
                         .c_out = weight.c_out,
                         .accumulate = args.accumulate};
    if (library && convolve_by_library(backend, strip, way, rows, memory, sums)) continue;
    way.convolve(backend, strip);
  }
}

}  // namespace

std::size_t CudaBackend::conv_scratch_bytes(const Conv2dArgs& args) const {
  return scratch_bytes(plan(args, device_.index), asks_library(options_, *libraries_));
}

void add_conv2d_ops(OpTable& table) { table.add<conv2d>(); }

}  // namespace tessera::cuda
