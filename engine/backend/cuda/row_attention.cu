// Attention weights of chosen query rows. One warp takes one key through all rows and heads, in
// order; a score is a sum over its lanes and one fixed tree. Means are taken in double.
#include "engine/ops/row_attention.h"

#include "engine/backend/cuda/launch.cuh"
#include "engine/core/index.h"

namespace tessera::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;

struct Rows {
  const float *q, *keys, *bias, *log_sum;  // bias or null
  float scale;
  std::int64_t count, heads, kv_heads, dim, key_count;
  bool mean_rows, mean_heads;
  float* out;
};

// In every lane of the warp.
__device__ inline float score(const Rows& a, std::int64_t row, std::int64_t head,
                              std::int64_t key) {
  const float* q = a.q + (row * a.heads + head) * a.dim;
  const float* k = a.keys + (key * a.kv_heads + head / (a.heads / a.kv_heads)) * a.dim;
  float sum = 0.0f;
  for (std::int64_t d = threadIdx.x % kWarp; d < a.dim; d += kWarp) sum = fmaf(q[d], k[d], sum);
  return fmaf(warp_sum(sum), a.scale, a.bias != nullptr ? a.bias[key] : 0.0f);
}

// ln of the sum of exponentials over all keys: a block for each row and head, whose warps take
// every eighth key.
__global__ void log_sums(Rows a, float* out) {
  __shared__ double part[kWarps];
  const std::int64_t row = blockIdx.x / a.heads, head = blockIdx.x % a.heads;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  double peak = -HUGE_VAL;
  for (std::int64_t key = warp; key < a.key_count; key += kWarps) {
    const double value = score(a, row, head, key);
    if (value > peak) peak = value;
  }
  part[warp] = peak;
  __syncthreads();
  for (int i = 0; i < kWarps; ++i) peak = part[i] > peak ? part[i] : peak;
  __syncthreads();
  double total = 0.0;
  for (std::int64_t key = warp; key < a.key_count; key += kWarps) {
    total += exp(score(a, row, head, key) - peak);
  }
  part[warp] = total;
  __syncthreads();
  if (threadIdx.x == 0) {
    total = part[0];
    for (int i = 1; i < kWarps; ++i) total += part[i];
    out[blockIdx.x] = to_float(peak + log(total));
  }
}

__global__ void row_weights(Rows a) {
  const std::int64_t key = blockIdx.x * std::int64_t{kWarps} + threadIdx.x / kWarp;
  if (key >= a.key_count) return;
  const std::int64_t row_step = a.mean_rows ? a.count : 1;
  const std::int64_t head_step = a.mean_heads ? a.heads : 1;
  float* out = a.out + key;
  for (std::int64_t row = 0; row < a.count; row += row_step) {
    for (std::int64_t head = 0; head < a.heads; head += head_step) {
      double sum = 0.0;
      for (std::int64_t r = row; r < row + row_step; ++r) {
        for (std::int64_t h = head; h < head + head_step; ++h) {
          sum += expf(score(a, r, h, key) - a.log_sum[r * a.heads + h]);
        }
      }
      if (threadIdx.x % kWarp == 0) *out = to_float(sum / to_double(row_step * head_step));
      out += a.key_count;
    }
  }
}

void row_attention(CudaBackend& backend, const RowAttentionArgs& args) {
  using enum AttentionMean;
  Rows rows{.q = args.q.f32(),
            .keys = args.keys.f32(),
            .bias = args.key_bias.empty() ? nullptr : args.key_bias.f32(),
            .log_sum = args.log_sum.empty() ? nullptr : args.log_sum.f32(),
            .scale = args.scale,
            .count = args.q.shape[0],
            .heads = args.q.shape[1],
            .kv_heads = args.keys.shape[1],
            .dim = args.q.shape[2],
            .key_count = args.keys.shape[0],
            .mean_rows = args.mean == kRows || args.mean == kBoth,
            .mean_heads = args.mean == kHeads || args.mean == kBoth,
            .out = args.out.f32()};
  if (rows.log_sum == nullptr) {
    const std::int64_t sums = rows.count * rows.heads;
    auto* own =
        static_cast<float*>(backend.scratch(static_cast<std::size_t>(sums) * sizeof(float)));
    launch(backend, "log sums of rows", {.blocks = sums, .threads = kThreads}, log_sums, rows, own);
    rows.log_sum = own;
  }
  launch(backend, "weights of rows",
         {.blocks = divide_up(rows.key_count, kWarps), .threads = kThreads}, row_weights, rows);
}

}  // namespace

void add_row_attention_ops(OpTable& table) { table.add<row_attention>(); }

}  // namespace tessera::cuda
