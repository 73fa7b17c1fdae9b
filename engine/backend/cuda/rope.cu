// Rotary position embedding (Su et al. 2021) from tables of cosines and sines per row, alone and
// joined with what stands around it between the product of a layer and its attention: the split
// into queries, keys and values, the norms of heads, and the copies into the cache.
#include "engine/ops/rope.h"

#include "engine/backend/cuda/launch.cuh"
#include "engine/backend/cuda/stored.cuh"
#include "engine/core/index.h"

namespace tessera::cuda {

namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kWarps = kThreads / kWarp;

struct Pair {
  float first, second;
};

__device__ inline Pair turned(float a, float b, float cos, float sin) {
  return {fmaf(a, cos, -(b * sin)), fmaf(b, cos, a * sin)};
}

// Where the two numbers of pair i stand.
struct Pairing {
  std::int64_t step, partner;
};

Pairing pairing_of(RopePairing pairing, std::int64_t dim) {
  return pairing == RopePairing::kHalfSplit ? Pairing{1, dim / 2} : Pairing{2, 1};
}

// A block for every row and every piece of its pairs.
__global__ void rope_rows(float* x, const float* cos, const float* sin, std::int64_t heads,
                          std::int64_t dim, Pairing pairing) {
  begin_after_previous();
  const std::int64_t half = dim / 2;
  const std::int64_t place = std::int64_t{blockIdx.y} * kThreads + threadIdx.x;
  if (place >= heads * half) return;
  const std::int64_t head = place / half;
  const std::int64_t i = place - head * half;
  float* first = x + (blockIdx.x * heads + head) * dim + i * pairing.step;
  const std::int64_t at = blockIdx.x * half + i;
  const Pair out = turned(first[0], first[pairing.partner], cos[at], sin[at]);
  first[0] = out.first;
  first[pairing.partner] = out.second;
}

struct QkvRope {
  const float* qkv;
  const float *q_norm, *k_norm;  // or null
  float eps;
  const float *cos, *sin;
  const std::int64_t* slots;
  float* q;
  void *keys, *values;
  std::int64_t rows, heads, kv_heads, dim;
  Pairing pairing;
};

// What a head is multiplied by in its norm, summed as norm.cu sums a narrow row.
__device__ inline float norm_factor(const float* head, std::int64_t dim, float eps) {
  float squares = 0.0f;
  for (std::int64_t c = threadIdx.x % kWarp; c < dim; c += kWarp) {
    squares = fmaf(head[c], head[c], squares);
  }
  const float mean = warp_sum(squares) / to_float(dim);
  return 1.0f / sqrtf(mean + eps);
}

// One warp: a head of queries or keys, normed if there is a norm, and turned.
template <typename T>
__device__ inline void turn_head(const QkvRope& a, const float* head, const float* norm,
                                 std::int64_t row, T* out) {
  const std::int64_t half = a.dim / 2;
  const float factor = norm != nullptr ? norm_factor(head, a.dim, a.eps) : 1.0f;
  for (std::int64_t i = threadIdx.x % kWarp; i < half; i += kWarp) {
    const std::int64_t first = i * a.pairing.step, second = first + a.pairing.partner;
    float x = head[first], y = head[second];
    if (norm != nullptr) {
      x = x * factor * norm[first];
      y = y * factor * norm[second];
    }
    const Pair pair = turned(x, y, a.cos[row * half + i], a.sin[row * half + i]);
    store_float(out + first, pair.first);
    store_float(out + second, pair.second);
  }
}

// A warp for every head of queries, keys and values of every row.
template <typename T>
__global__ void qkv_rope_heads(QkvRope a) {
  begin_after_previous();
  const std::int64_t all = a.heads + 2 * a.kv_heads;
  const std::int64_t index = blockIdx.x * kWarps + threadIdx.x / kWarp;
  const std::int64_t row = index / all;
  if (row >= a.rows) return;
  const std::int64_t place = index - row * all;
  const float* head = a.qkv + index * a.dim;
  if (place < a.heads) {
    turn_head(a, head, a.q_norm, row, a.q + (row * a.heads + place) * a.dim);
    return;
  }
  const std::int64_t slot = a.slots[row] * a.kv_heads;
  if (place < a.heads + a.kv_heads) {
    T* key = static_cast<T*>(a.keys) + (slot + place - a.heads) * a.dim;
    turn_head(a, head, a.k_norm, row, key);
    return;
  }
  T* value = static_cast<T*>(a.values) + (slot + place - a.heads - a.kv_heads) * a.dim;
  for (std::int64_t c = threadIdx.x % kWarp; c < a.dim; c += kWarp) store_float(value + c, head[c]);
}

void rope(CudaBackend& backend, const RopeArgs& op) {
  const std::int64_t heads = op.x.shape[1], dim = op.x.shape[2];
  launch(backend, "rope",
         {.blocks = op.x.shape[0],
          .threads = kThreads,
          .blocks_y = divide_up(heads * dim / 2, kThreads),
          .overlaps = true},
         rope_rows, op.x.f32(), op.cos.f32(), op.sin.f32(), heads, dim,
         pairing_of(op.pairing, dim));
}

void qkv_rope(CudaBackend& backend, const QkvRopeArgs& args) {
  const std::int64_t rows = args.q.shape[0], dim = args.q.shape[2];
  const QkvRope heads{.qkv = args.qkv.f32(),
                      .q_norm = args.q_norm.empty() ? nullptr : args.q_norm.f32(),
                      .k_norm = args.k_norm.empty() ? nullptr : args.k_norm.f32(),
                      .eps = args.eps,
                      .cos = args.cos.f32(),
                      .sin = args.sin.f32(),
                      .slots = backend.stage(args.slots),
                      .q = args.q.f32(),
                      .keys = args.keys.data,
                      .values = args.values.data,
                      .rows = rows,
                      .heads = args.q.shape[1],
                      .kv_heads = args.k.shape[1],
                      .dim = dim,
                      .pairing = pairing_of(args.pairing, dim)};
  expects(args.keys.dtype == args.values.dtype, "keys and values are stored alike");
  const Launch shape{.blocks = divide_up(rows * (heads.heads + 2 * heads.kv_heads), kWarps),
                     .threads = kThreads,
                     .overlaps = true};
  with_stored(args.keys.dtype, [&](auto number) {
    launch(backend, "qkv rope", shape, qkv_rope_heads<decltype(number)>, heads);
  });
}

}  // namespace

void add_rope_ops(OpTable& table) {
  table.add<rope>();
  table.add<qkv_rope>();
}

}  // namespace tessera::cuda
