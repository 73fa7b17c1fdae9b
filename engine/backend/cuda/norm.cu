// Normalisations. RMSNorm (Zhang & Sennrich 2019), LayerNorm (Ba et al. 2016), softmax and unit
// length: a row belongs to a warp or to a block, by its width alone, and each thread to the same
// columns whatever rows stand next to it. GroupNorm (Wu & He 2018) is reduced to one scale and shift
// per channel, which the next op applies as it reads.
#include <algorithm>

#include "engine/backend/cuda/launch.cuh"
#include "engine/core/index.h"
#include "engine/ops/norm.h"

namespace tessera::cuda {

namespace {

constexpr int kBlock = 256;               // threads of a launch
constexpr std::int64_t kWarpWidth = 512;  // rows up to this wide are summed by one warp
constexpr std::int64_t kMaxParts = 256;  // of a map, summed apart
constexpr std::int64_t kPartPixels = 32;  // at least, of a part

// The threads of one row, kWarp or kBlock of them.
template <int kThreads>
__device__ inline std::int64_t row_of_thread() {
  return std::int64_t{blockIdx.x} * (kBlock / kThreads) + threadIdx.x / kThreads;
}
template <int kThreads>
__device__ inline int place_in_row() {
  return static_cast<int>(threadIdx.x) % kThreads;
}

template <int kThreads, typename T>
__device__ inline T row_sum(T value, T* scratch) {
  if constexpr (kThreads == kWarp)
    return warp_sum(value);
  else
    return block_sum<kThreads>(value, scratch);
}

// Rows over blocks: eight of them, or one.
Launch over_rows(std::int64_t rows, std::int64_t width) {
  return {.blocks = width <= kWarpWidth ? divide_up(rows, kBlock / kWarp) : rows,
          .threads = kBlock,
          .overlaps = true};
}

// (x * (1 / sqrt(mean(x^2) + eps))) * weight
template <int kThreads>
__global__ void rms_norm_rows(const float* x, const float* weight, float eps, float* out,
                              std::int64_t rows, std::int64_t width) {
  __shared__ float scratch[kBlock / kWarp + 1];
  begin_after_previous();
  const std::int64_t row = row_of_thread<kThreads>();
  if (row >= rows) return;
  const float* from = x + row * width;
  float* to = out + row * width;
  float squares = 0.0f;
  for (std::int64_t c = place_in_row<kThreads>(); c < width; c += kThreads) {
    squares = fmaf(from[c], from[c], squares);
  }
  const float mean = row_sum<kThreads>(squares, scratch) / to_float(width);
  const float factor = 1.0f / sqrtf(mean + eps);
  for (std::int64_t c = place_in_row<kThreads>(); c < width; c += kThreads) {
    to[c] = from[c] * factor * weight[c];
  }
}

// (x - mean) * (1 / sqrt(mean((x - mean)^2) + eps)) * weight + bias
template <int kThreads>
__global__ void layer_norm_rows(const float* x, const float* weight, const float* bias, float eps,
                                float* out, std::int64_t rows, std::int64_t width) {
  __shared__ float scratch[kBlock / kWarp + 1];
  begin_after_previous();
  const std::int64_t row = row_of_thread<kThreads>();
  if (row >= rows) return;
  const float* from = x + row * width;
  float* to = out + row * width;
  float sum = 0.0f;
  for (std::int64_t c = place_in_row<kThreads>(); c < width; c += kThreads) sum += from[c];
  const float mean = row_sum<kThreads>(sum, scratch) / to_float(width);
  float squares = 0.0f;
  for (std::int64_t c = place_in_row<kThreads>(); c < width; c += kThreads) {
    const float gap = from[c] - mean;
    squares = fmaf(gap, gap, squares);
  }
  const float variance = row_sum<kThreads>(squares, scratch) / to_float(width);
  const float factor = 1.0f / sqrtf(variance + eps);
  for (std::int64_t c = place_in_row<kThreads>(); c < width; c += kThreads) {
    to[c] = fmaf((from[c] - mean) * factor, weight[c], bias[c]);
  }
}

// One warp a head of a row, in place, as layer_norm_rows has it.
__global__ void head_norm_rows(float* x, const float* weight, const float* bias, float eps,
                               std::int64_t rows, std::int64_t width, std::int64_t heads,
                               std::int64_t dim) {
  begin_after_previous();
  const std::int64_t index = row_of_thread<kWarp>();
  const std::int64_t row = index / heads, head = index - row * heads;
  if (row >= rows) return;
  float* const at = x + row * width + head * dim;
  float sum = 0.0f;
  for (std::int64_t c = place_in_row<kWarp>(); c < dim; c += kWarp) sum += at[c];
  const float mean = warp_sum(sum) / to_float(dim);
  float squares = 0.0f;
  for (std::int64_t c = place_in_row<kWarp>(); c < dim; c += kWarp) {
    const float gap = at[c] - mean;
    squares = fmaf(gap, gap, squares);
  }
  const float factor = 1.0f / sqrtf(warp_sum(squares) / to_float(dim) + eps);
  for (std::int64_t c = place_in_row<kWarp>(); c < dim; c += kWarp) {
    at[c] = fmaf((at[c] - mean) * factor, weight[head * dim + c], bias[head * dim + c]);
  }
}

// Sums in double. The largest number passes over NaN, which its own exponential brings back.
__global__ void softmax_each_row(const float* x, float* out, std::int64_t width) {
  __shared__ double scratch[kBlock / kWarp + 1];
  begin_after_previous();
  const float* from = x + blockIdx.x * width;
  float* to = out + blockIdx.x * width;
  double largest = -HUGE_VAL;
  for (std::int64_t c = threadIdx.x; c < width; c += kBlock) {
    const double value = from[c];
    if (value > largest) largest = value;
  }
  const double peak = block_max<kBlock>(largest, scratch);
  double sum = 0.0;
  for (std::int64_t c = threadIdx.x; c < width; c += kBlock) sum += exp(from[c] - peak);
  const double total = block_sum<kBlock>(sum, scratch);
  for (std::int64_t c = threadIdx.x; c < width; c += kBlock) {
    to[c] = to_float(exp(from[c] - peak) / total);
  }
}

// How the sums of a map are cut, by its shape: parts of its pixels, in each `lanes` pixels at once.
// [parts][lanes][2][channels]: sum and sum of squares. In double the square of a float is exact.
struct Sums {
  double* of;
  std::int64_t pixels, channels, parts, lanes;
};

Sums cut_map(const Shape& map) {
  Sums out{};
  out.pixels = map[0] * map[1];
  out.channels = map[2];
  out.parts = std::clamp(out.pixels / kPartPixels, std::int64_t{1}, kMaxParts);
  out.lanes = std::max<std::int64_t>(1, kBlock / out.channels);
  return out;
}

__global__ void sum_channels(const float* x, Sums sums) {
  begin_after_previous();
  const std::int64_t begin = sums.pixels * blockIdx.x / sums.parts;
  const std::int64_t end = sums.pixels * (blockIdx.x + 1) / sums.parts;
  const std::int64_t lane = threadIdx.x / sums.channels;  // 0 where a row is wider than the block
  const bool wide = sums.channels > kBlock;
  if (!wide && lane >= sums.lanes) return;
  const std::int64_t first = wide ? threadIdx.x : threadIdx.x - lane * sums.channels;
  for (std::int64_t c = first; c < sums.channels; c += kBlock) {
    double sum = 0.0, squares = 0.0;
    for (std::int64_t pixel = begin + lane; pixel < end; pixel += sums.lanes) {
      const double value = x[pixel * sums.channels + c];
      sum += value;
      squares = fma(value, value, squares);
    }
    double* to = sums.of + (blockIdx.x * sums.lanes + lane) * 2 * sums.channels;
    to[c] = sum;
    to[sums.channels + c] = squares;
  }
}

// A block for every group.
__global__ void group_coefficients(Sums sums, std::int64_t width, double eps, const float* gamma,
                                   const float* beta, float* scale, float* shift) {
  __shared__ double scratch[kBlock / kWarp + 1];
  begin_after_previous();
  const std::int64_t begin = blockIdx.x * width;
  double sum = 0.0, squares = 0.0;
  for (std::int64_t i = threadIdx.x; i < sums.parts * sums.lanes * width; i += kBlock) {
    const double* from = sums.of + i / width * 2 * sums.channels + begin + i % width;
    sum += from[0];
    squares += from[sums.channels];
  }
  const double count = to_double(sums.pixels * width);
  const double mean = block_sum<kBlock>(sum, scratch) / count;
  double variance = block_sum<kBlock>(squares, scratch) / count - mean * mean;
  if (variance < 0.0) variance = 0.0;  // NaN goes through
  const double factor = 1.0 / sqrt(variance + eps);
  for (std::int64_t c = begin + threadIdx.x; c < begin + width; c += kBlock) {
    const double slope = factor * gamma[c];
    scale[c] = to_float(slope);
    shift[c] = to_float(fma(-mean, slope, double{beta[c]}));
  }
}

template <int kThreads>
__global__ void unit_rows(const float* x, double eps, float* out, std::int64_t rows,
                          std::int64_t width) {
  __shared__ double scratch[kBlock / kWarp + 1];
  begin_after_previous();
  const std::int64_t row = row_of_thread<kThreads>();
  if (row >= rows) return;
  const float* from = x + row * width;
  float* to = out + row * width;
  double squares = 0.0;
  for (std::int64_t c = place_in_row<kThreads>(); c < width; c += kThreads) {
    const double value = from[c];
    squares = fma(value, value, squares);
  }
  double length = sqrt(row_sum<kThreads>(squares, scratch));
  if (length < eps) length = eps;
  for (std::int64_t c = place_in_row<kThreads>(); c < width; c += kThreads) {
    to[c] = to_float(from[c] / length);
  }
}

void rms_norm(CudaBackend& backend, const RmsNormArgs& op) {
  const std::int64_t rows = op.x.shape[0], width = op.x.shape[1];
  launch(backend, "rms norm", over_rows(rows, width),
         width <= kWarpWidth ? rms_norm_rows<kWarp> : rms_norm_rows<kBlock>, op.x.f32(),
         op.weight.f32(), op.eps, op.out.f32(), rows, width);
}

void layer_norm(CudaBackend& backend, const LayerNormArgs& op) {
  const std::int64_t rows = op.x.shape[0], width = op.x.shape[1];
  launch(backend, "layer norm", over_rows(rows, width),
         width <= kWarpWidth ? layer_norm_rows<kWarp> : layer_norm_rows<kBlock>, op.x.f32(),
         op.weight.f32(), op.bias.f32(), op.eps, op.out.f32(), rows, width);
}

void head_norm(CudaBackend& backend, const HeadNormArgs& op) {
  const std::int64_t rows = op.x.shape[0], heads = op.weight.shape[0], dim = op.weight.shape[1];
  launch(backend, "head norm",
         {.blocks = divide_up(rows * heads, kBlock / kWarp), .threads = kBlock, .overlaps = true},
         head_norm_rows, op.x.f32(), op.weight.f32(), op.bias.f32(), op.eps, rows, op.x.shape[1],
         heads, dim);
}

void softmax_rows(CudaBackend& backend, const SoftmaxRowsArgs& op) {
  launch(backend, "softmax rows", {.blocks = op.x.shape[0], .threads = kBlock, .overlaps = true},
         softmax_each_row, op.x.f32(), op.out.f32(), op.x.shape[1]);
}

void group_norm_coefficients(CudaBackend& backend, const GroupNormArgs& op) {
  Sums sums = cut_map(op.x.shape);
  const std::int64_t numbers = sums.parts * sums.lanes * 2 * sums.channels;
  sums.of =
      static_cast<double*>(backend.scratch(static_cast<std::size_t>(numbers) * sizeof(double)));
  launch(backend, "sums of channels", {.blocks = sums.parts, .threads = kBlock, .overlaps = true},
         sum_channels, op.x.f32(), sums);
  launch(backend, "group norm", {.blocks = op.groups, .threads = kBlock, .overlaps = true},
         group_coefficients, sums, sums.channels / op.groups, double{op.eps}, op.gamma.f32(),
         op.beta.f32(), op.scale.f32(), op.shift.f32());
}

void l2_normalize(CudaBackend& backend, const L2NormalizeArgs& op) {
  const std::int64_t rows = op.x.shape[0], width = op.x.shape[1];
  launch(backend, "unit rows", over_rows(rows, width),
         width <= kWarpWidth ? unit_rows<kWarp> : unit_rows<kBlock>, op.x.f32(), double{op.eps},
         op.out.f32(), rows, width);
}

}  // namespace

void add_norm_ops(OpTable& table) {
  table.add<rms_norm>();
  table.add<layer_norm>();
  table.add<head_norm>();
  table.add<softmax_rows>();
  table.add<group_norm_coefficients>();
  table.add<l2_normalize>();
}

}  // namespace tessera::cuda
