// Embedding rows, sums, activations, copies into the cache and affine maps. Every element by
// itself: where it stands and what stands next to it change nothing.
#include <algorithm>
#include <vector>

#include "engine/backend/cuda/block_rows.cuh"
#include "engine/backend/cuda/launch.cuh"
#include "engine/backend/cuda/stored.cuh"
#include "engine/ops/elementwise.h"
#include "engine/ops/relu.h"

namespace tessera::cuda {

namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kMaxColumnBlocks = 4096;

// A block for every row and every piece of its columns; longer rows are walked.
Launch over_rows(std::int64_t rows, std::int64_t columns) {
  return {.blocks = rows,
          .threads = kThreads,
          .blocks_y = std::min(divide_up(columns, kThreads), kMaxColumnBlocks),
          .overlaps = true};
}

Launch over_elements(std::int64_t count) {
  return {.blocks = divide_up(count, kThreads), .threads = kThreads, .overlaps = true};
}

__device__ inline std::int64_t first_column() {
  return std::int64_t{blockIdx.y} * kThreads + threadIdx.x;
}
__device__ inline std::int64_t column_step() { return std::int64_t{gridDim.y} * kThreads; }
__device__ inline std::int64_t element() {
  return std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
}

// i / by, i not negative: short where both numbers are, as they are for all but huge maps.
__device__ inline std::int64_t quotient(std::int64_t i, std::int64_t by) {
  if ((i | by) >> 32 != 0) return i / by;
  return static_cast<std::uint32_t>(i) / static_cast<std::uint32_t>(by);
}

__device__ inline float silu(float x) { return x / (1.0f + expf(-x)); }

template <typename T>
__global__ void embedding_rows(const T* table, const std::int32_t* ids, std::int64_t width,
                               float* out) {
  begin_after_previous();
  const T* from = table + ids[blockIdx.x] * width;
  float* to = out + blockIdx.x * width;
  for (std::int64_t c = first_column(); c < width; c += column_step()) {
    to[c] = load_as_float(from + c);
  }
}

// Four neighbours a thread, of rows of blocks or f16.
template <typename Rows>
__global__ void embedding_blocks(const typename Rows::Unit* table, std::int64_t pitch,
                                 const std::int32_t* ids, std::int64_t width, float* out) {
  begin_after_previous();
  const typename Rows::Unit* from = table + ids[blockIdx.x] * pitch;
  float* to = out + blockIdx.x * width;
  for (std::int64_t c = 4 * first_column(); c < width; c += 4 * column_step()) {
    const float4 v = Rows::four(from, c);
    to[c] = v.x;
    to[c + 1] = v.y;
    to[c + 2] = v.z;
    to[c + 3] = v.w;
  }
}

__global__ void add_elements(const float* a, const float* b, float* out, std::int64_t count) {
  begin_after_previous();
  const std::int64_t i = element();
  if (i < count) out[i] = a[i] + b[i];
}

// x Phi(x), with erfc so that the small side keeps its digits.
struct Gelu {
  __device__ float operator()(float x) const { return 0.5f * x * erfcf(-0.70710678f * x); }
};

// x / 2 (1 + tanh u), u = sqrt(2 / pi) (x + 0.044715 x^3), as x / (1 + e^-2u).
struct GeluTanh {
  __device__ float operator()(float x) const {
    const float inner = fmaf(x * x, -0.0713548162726f, -1.59576912161f);
    return x / (1.0f + expf(x * inner));
  }
};

struct Relu {
  __device__ float operator()(float x) const { return x < 0.0f ? 0.0f : x; }
};

struct QuickGelu {
  __device__ float operator()(float x) const { return x / (1.0f + expf(-1.702f * x)); }
};

template <typename Function>
__global__ void map_elements(Function function, const float* x, float* out, std::int64_t count) {
  begin_after_previous();
  const std::int64_t i = element();
  if (i < count) out[i] = function(x[i]);
}

struct Silu {
  __device__ float operator()(float x) const { return silu(x); }
};

template <typename Function>
__global__ void gated_rows(Function function, const float* gate_up, float* out,
                           std::int64_t width) {
  begin_after_previous();
  const float* gate = gate_up + blockIdx.x * 2 * width;
  float* to = out + blockIdx.x * width;
  for (std::int64_t c = first_column(); c < width; c += column_step()) {
    to[c] = function(gate[c]) * gate[width + c];
  }
}

// Row k of the output is the sum over the list [begin[k], begin[k + 1]) of rows that go there.
__global__ void combine_listed_rows(const float* x, const std::int32_t* begin,
                                    const std::int32_t* listed, const float* weight,
                                    std::int64_t width, float* out) {
  begin_after_previous();
  const std::int32_t first = begin[blockIdx.x], last = begin[blockIdx.x + 1];
  for (std::int64_t c = first_column(); c < width; c += column_step()) {
    float sum = 0.0f;
    for (std::int32_t i = first; i < last; ++i) {
      const std::int32_t row = listed[i];
      sum = fmaf(weight[row], x[row * width + c], sum);
    }
    out[blockIdx.x * width + c] = sum;
  }
}

template <typename T>
__global__ void store_each_row(const float* rows, std::int64_t stride, const std::int64_t* slots,
                               std::int64_t width, T* cache) {
  begin_after_previous();
  const float* from = rows + blockIdx.x * stride;
  T* to = cache + slots[blockIdx.x] * width;
  for (std::int64_t c = first_column(); c < width; c += column_step()) {
    store_float(to + c, from[c]);
  }
}

__global__ void affine_elements(const float* x, const float* scale, const float* shift, float* out,
                                std::int64_t channels, std::int64_t count) {
  begin_after_previous();
  const std::int64_t i = element();
  if (i >= count) return;
  const std::int64_t c = i - quotient(i, channels) * channels;
  out[i] = fmaf(scale[c], x[i], shift[c]);
}

struct Modulation {
  const float* in;
  const float *scale, *shift, *gain, *bias;
  float* out;
  std::int64_t width, channels;  // of the map
  std::int64_t down, across;     // pixels of a coarse place
  bool swish;
};

// A block for every row of pixels and every piece of it.
__global__ void modulate_pixels(Modulation m) {
  begin_after_previous();
  const std::int64_t coarse = m.width / m.across;
  const std::int64_t places = blockIdx.x / m.down * coarse;
  const std::int64_t row = blockIdx.x * m.width * m.channels;
  for (std::int64_t i = first_column(); i < m.width * m.channels; i += column_step()) {
    const std::int64_t x = quotient(i, m.channels);
    const std::int64_t c = i - x * m.channels;
    const std::int64_t place = (places + quotient(x, m.across)) * m.channels + c;
    const float gain = m.gain[place];
    const float scale = m.scale[c] * gain;
    const float shift = fmaf(m.shift[c], gain, m.bias[place]);
    const float y = fmaf(scale, m.in[row + i], shift);
    m.out[row + i] = m.swish ? silu(y) : y;
  }
}

void embedding(CudaBackend& backend, const EmbeddingArgs& op) {
  const std::int64_t width = op.table.shape[1];
  const std::int32_t* rows = backend.stage(op.ids);
  const Launch shape = over_rows(std::ssize(op.ids), width);
  const StorageType& type = storage_of(op.table.dtype);
  if (type.block > 1 || type.dtype == DType::kF16) {
    expects(width % 4 == 0, "rows of a table of blocks or f16 are read four numbers at a time");
    with_rows(type.dtype, [&](auto rows_of) {
      using Rows = decltype(rows_of);
      using Unit = typename Rows::Unit;
      launch(backend, "embedding of blocks", over_rows(std::ssize(op.ids), width / 4),
             embedding_blocks<Rows>, static_cast<const Unit*>(op.table.data),
             to_index(type.bytes(width) / sizeof(Unit)), rows, width, op.out.f32());
    });
    return;
  }
  with_stored(op.table.dtype, [&](auto number) {
    using T = decltype(number);
    launch(backend, "embedding", shape, embedding_rows<T>, op.table.as<T>(), rows, width,
           op.out.f32());
  });
}

void add(CudaBackend& backend, const AddArgs& op) {
  const std::int64_t count = op.out.shape.elements();
  launch(backend, "add", over_elements(count), add_elements, op.a.f32(), op.b.f32(), op.out.f32(),
         count);
}

template <typename Function>
void map_gated(CudaBackend& backend, const char* name, Function function,
               const ConstTensorView& gate_up, const TensorView& out) {
  const std::int64_t width = out.shape[1];
  launch(backend, name, over_rows(out.shape[0], width), gated_rows<Function>, function,
         gate_up.f32(), out.f32(), width);
}

void silu_mul(CudaBackend& backend, const SiluMulArgs& op) {
  map_gated(backend, "silu mul", Silu{}, op.gate_up, op.out);
}

void gelu_tanh_mul(CudaBackend& backend, const GeluTanhMulArgs& op) {
  map_gated(backend, "gelu tanh mul", GeluTanh{}, op.gate_up, op.out);
}

template <typename Function>
void map(CudaBackend& backend, const char* name, Function function, const ConstTensorView& x,
         const TensorView& out) {
  const std::int64_t count = out.shape.elements();
  launch(backend, name, over_elements(count), map_elements<Function>, function, x.f32(), out.f32(),
         count);
}

void gelu(CudaBackend& backend, const GeluArgs& op) { map(backend, "gelu", Gelu{}, op.x, op.out); }

void gelu_tanh(CudaBackend& backend, const GeluTanhArgs& op) {
  map(backend, "gelu tanh", GeluTanh{}, op.x, op.out);
}

void quick_gelu(CudaBackend& backend, const QuickGeluArgs& op) {
  map(backend, "quick gelu", QuickGelu{}, op.x, op.out);
}

void relu(CudaBackend& backend, const ReluArgs& op) { map(backend, "relu", Relu{}, op.x, op.out); }

// The rows are sorted by destination here, each list in the order of the rows.
void combine_rows(CudaBackend& backend, const CombineRowsArgs& op) {
  const std::int64_t width = op.x.shape[1];
  std::vector<std::int32_t> begin(static_cast<std::size_t>(op.out.shape[0]) + 1, 0);
  for (const std::int32_t row : op.to) ++begin[static_cast<std::size_t>(row) + 1];
  for (std::size_t k = 1; k < begin.size(); ++k) begin[k] += begin[k - 1];
  std::vector<std::int32_t> next = begin, listed(op.to.size());
  for (std::size_t i = 0; i < op.to.size(); ++i) {
    std::int32_t& place = next[static_cast<std::size_t>(op.to[i])];
    listed[static_cast<std::size_t>(place++)] = static_cast<std::int32_t>(i);
  }
  const auto* begins = backend.stage(std::span<const std::int32_t>(begin));
  const auto* lists = backend.stage(std::span<const std::int32_t>(listed));
  const float* weights = backend.stage(op.weight);
  launch(backend, "combine rows", over_rows(op.out.shape[0], width), combine_listed_rows,
         op.x.f32(), begins, lists, weights, width, op.out.f32());
}

void store_rows(CudaBackend& backend, const StoreRowsArgs& op) {
  const std::int64_t width = op.cache.shape[1] * op.cache.shape[2];
  const std::int64_t* places = backend.stage(op.slots);
  const Launch shape = over_rows(std::ssize(op.slots), width);
  with_stored(op.cache.dtype, [&](auto number) {
    using T = decltype(number);
    launch(backend, "store rows", shape, store_each_row<T>, op.rows.f32(), op.row_stride, places,
           width, op.cache.as<T>());
  });
}

void affine_channels(CudaBackend& backend, const AffineChannelsArgs& op) {
  const std::int64_t count = op.x.shape.elements();
  launch(backend, "affine channels", over_elements(count), affine_elements, op.x.f32(),
         op.scale.f32(), op.shift.f32(), op.out.f32(), op.scale.shape[0], count);
}

void modulate(CudaBackend& backend, const ModulateArgs& args) {
  const std::int64_t height = args.in.shape[0], width = args.in.shape[1];
  const std::int64_t channels = args.in.shape[2];
  const Modulation modulation{.in = args.in.f32(),
                              .scale = args.scale.f32(),
                              .shift = args.shift.f32(),
                              .gain = args.gain.f32(),
                              .bias = args.bias.f32(),
                              .out = args.out.f32(),
                              .width = width,
                              .channels = channels,
                              .down = height / args.gain.shape[0],
                              .across = width / args.gain.shape[1],
                              .swish = args.swish};
  launch(backend, "modulate", over_rows(height, width * channels), modulate_pixels, modulation);
}

}  // namespace

void add_elementwise_ops(OpTable& table) {
  table.add<embedding>();
  table.add<add>();
  table.add<silu_mul>();
  table.add<gelu_tanh_mul>();
  table.add<gelu>();
  table.add<gelu_tanh>();
  table.add<quick_gelu>();
  table.add<combine_rows>();
  table.add<store_rows>();
  table.add<affine_channels>();
  table.add<modulate>();
  table.add<relu>();
}

}  // namespace tessera::cuda
