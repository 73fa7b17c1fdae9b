// Embedding rows, sums, activations and copies into the cache.
#include "engine/ops/elementwise.h"

#include <algorithm>
#include <vector>

#include "engine/backend/cpu/cpu_backend.h"
#include "engine/core/index.h"
#include "engine/ops/relu.h"

namespace tessera::cpu {

namespace {
constexpr std::int64_t kGrain = 16384;  // elements of one task
std::int64_t rows_of(std::int64_t width) {
  return std::max<std::int64_t>(1, kGrain / std::max<std::int64_t>(width, 1));
}

// row(x, out, n) on runs of numbers, each by itself.
template <typename Row>
void map(CpuBackend& cpu, const ConstTensorView& x, const TensorView& out, Row row) {
  cpu.threads().parallel_for(
      out.shape.elements(), kGrain,
      [&](std::int64_t i, std::int64_t end, int) { row(x.f32() + i, out.f32() + i, end - i); });
}

void embedding(CpuBackend&, const EmbeddingArgs& op) {
  const std::int64_t width = op.table.shape[1];
  const StorageType& storage = storage_of(op.table.dtype);
  const auto* const table = op.table.raw();
  float* to = op.out.f32();
  for (const std::int32_t id : op.ids) {
    storage.read(table + storage.bytes(id, width), 0, 1, width, to);
    to += width;
  }
}

void add(CpuBackend& cpu, const AddArgs& op) {
  const float* left = op.a.f32();
  const float* right = op.b.f32();
  float* to = op.out.f32();
  cpu.threads().parallel_for(op.out.shape.elements(), kGrain,
                             [&](std::int64_t i, std::int64_t end, int) {
                               for (; i < end; ++i) to[i] = left[i] + right[i];
                             });
}

void silu_mul(CpuBackend& cpu, const SiluMulArgs& op) {
  const std::int64_t width = op.out.shape[1];
  cpu.threads().parallel_for(
      op.out.shape[0], rows_of(width), [&](std::int64_t row, std::int64_t end, int) {
        for (; row < end; ++row) {
          const float* gate = op.gate_up.f32() + row * 2 * width;
          cpu.kernels().silu_mul(gate, gate + width, op.out.f32() + row * width, width);
        }
      });
}

void gelu_tanh_mul(CpuBackend& cpu, const GeluTanhMulArgs& op) {
  const std::int64_t width = op.out.shape[1];
  cpu.threads().parallel_for(
      op.out.shape[0], rows_of(width), [&](std::int64_t row, std::int64_t end, int) {
        for (; row < end; ++row) {
          const float* gate = op.gate_up.f32() + row * 2 * width;
          float* to = op.out.f32() + row * width;
          cpu.kernels().gelu_tanh(gate, to, width);
          for (std::int64_t i = 0; i < width; ++i) to[i] *= gate[width + i];
        }
      });
}

void gelu(CpuBackend& cpu, const GeluArgs& op) { map(cpu, op.x, op.out, cpu.kernels().gelu); }

void gelu_tanh(CpuBackend& cpu, const GeluTanhArgs& op) {
  map(cpu, op.x, op.out, cpu.kernels().gelu_tanh);
}

void quick_gelu(CpuBackend& cpu, const QuickGeluArgs& op) {
  map(cpu, op.x, op.out, cpu.kernels().quick_gelu);
}

void relu(CpuBackend& cpu, const ReluArgs& op) {
  map(cpu, op.x, op.out, [](const float* x, float* out, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) out[i] = x[i] < 0.0f ? 0.0f : x[i];
  });
}

void combine_rows(CpuBackend&, const CombineRowsArgs& op) {
  const std::int64_t width = op.x.shape[1];
  std::fill_n(op.out.f32(), op.out.shape.elements(), 0.0f);
  for (std::size_t i = 0; i < op.to.size(); ++i) {
    const float* from = op.x.f32() + to_index(i) * width;
    float* sum = op.out.f32() + op.to[i] * width;
    for (std::int64_t c = 0; c < width; ++c) sum[c] += op.weight[i] * from[c];
  }
}

void store_rows(CpuBackend&, const StoreRowsArgs& op) {
  for (std::size_t i = 0; i < op.slots.size(); ++i) {
    write_cached(op.rows.f32() + to_index(i) * op.row_stride, op.cache, op.slots[i]);
  }
}

void load_rows(CpuBackend&, const LoadRowsArgs& op) {
  const std::int64_t width = op.out.shape[1];
  for (std::size_t i = 0; i < op.slots.size(); ++i) {
    read_cached(op.cache, op.slots[i], op.out.f32() + to_index(i) * width);
  }
}

void affine_channels(CpuBackend& cpu, const AffineChannelsArgs& op) {
  const std::int64_t channels = op.scale.shape[0];
  const std::int64_t pixels = op.x.shape.elements() / channels;
  cpu.threads().parallel_for(
      pixels, rows_of(channels), [&](std::int64_t begin, std::int64_t end, int) {
        cpu.kernels().affine(op.x.f32() + begin * channels, op.scale.f32(), op.shift.f32(), false,
                             op.out.f32() + begin * channels, channels, end - begin);
      });
}

// The two maps of a coarse place are joined into one before its pixels are read.
void modulate(CpuBackend& cpu, const ModulateArgs& args) {
  const std::int64_t channels = args.in.shape[2];
  const std::int64_t width = args.in.shape[1];
  const std::int64_t coarse = args.gain.shape[1];
  const std::int64_t down = args.in.shape[0] / args.gain.shape[0];
  const std::int64_t across = width / coarse;
  const auto count = to_size(channels);
  cpu.threads().parallel_for(args.in.shape[0], 1, [&](std::int64_t row, std::int64_t end, int) {
    std::vector<float> joined(2 * count);
    float* scale = joined.data();
    float* shift = scale + count;
    for (; row < end; ++row) {
      for (std::int64_t cell = 0; cell < coarse; ++cell) {
        const std::int64_t place = (row / down * coarse + cell) * channels;
        const float* gain = args.gain.f32() + place;
        const float* bias = args.bias.f32() + place;
        for (std::size_t c = 0; c < count; ++c) {
          scale[c] = args.scale.f32()[c] * gain[c];
          shift[c] = args.shift.f32()[c] * gain[c] + bias[c];
        }
        const std::int64_t at = (row * width + cell * across) * channels;
        cpu.kernels().affine(args.in.f32() + at, scale, shift, args.swish, args.out.f32() + at,
                             channels, across);
      }
    }
  });
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
  table.add<load_rows>();
  table.add<relu>();
}

}  // namespace tessera::cpu
