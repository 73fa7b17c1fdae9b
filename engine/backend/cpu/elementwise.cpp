// Embedding rows, sums, activations and copies into the cache.
#include <algorithm>
#include <cstring>
#include <vector>

#include "engine/backend/cpu/cpu_backend.h"

namespace tessera::cpu {

namespace {
constexpr std::int64_t kGrain = 16384;  // elements of one task
std::int64_t rows_of(std::int64_t width) {
  return std::max<std::int64_t>(1, kGrain / std::max<std::int64_t>(width, 1));
}
}  // namespace

void CpuBackend::embedding(ConstTensorView table, std::span<const std::int32_t> ids,
                           TensorView out) {
  const std::int64_t width = table.shape[1];
  float* to = out.f32();
  for (const std::int32_t id : ids) {
    if (table.dtype == DType::kF32) {
      std::memcpy(to, table.f32() + id * width, static_cast<std::size_t>(width) * sizeof(float));
    } else {
      const std::uint16_t* row = table.as<std::uint16_t>() + id * width;
      for (std::int64_t i = 0; i < width; ++i) to[i] = bf16_to_float(row[i]);
    }
    to += width;
  }
}

void CpuBackend::add(ConstTensorView a, ConstTensorView b, TensorView out) {
  const float* left = a.f32();
  const float* right = b.f32();
  float* to = out.f32();
  pool_.parallel_for(out.shape.elements(), kGrain, [&](std::int64_t i, std::int64_t end, int) {
    for (; i < end; ++i) to[i] = left[i] + right[i];
  });
}

void CpuBackend::silu_mul(ConstTensorView gate_up, TensorView out) {
  const std::int64_t width = out.shape[1];
  pool_.parallel_for(out.shape[0], rows_of(width), [&](std::int64_t row, std::int64_t end, int) {
    for (; row < end; ++row) {
      const float* gate = gate_up.f32() + row * 2 * width;
      kernels_.silu_mul(gate, gate + width, out.f32() + row * width, width);
    }
  });
}

void CpuBackend::gelu(ConstTensorView x, TensorView out) {
  pool_.parallel_for(out.shape.elements(), kGrain, [&](std::int64_t i, std::int64_t end, int) {
    kernels_.gelu(x.f32() + i, out.f32() + i, end - i);
  });
}

void CpuBackend::gelu_tanh(ConstTensorView x, TensorView out) {
  pool_.parallel_for(out.shape.elements(), kGrain, [&](std::int64_t i, std::int64_t end, int) {
    kernels_.gelu_tanh(x.f32() + i, out.f32() + i, end - i);
  });
}

void CpuBackend::quick_gelu(ConstTensorView x, TensorView out) {
  pool_.parallel_for(out.shape.elements(), kGrain, [&](std::int64_t i, std::int64_t end, int) {
    kernels_.quick_gelu(x.f32() + i, out.f32() + i, end - i);
  });
}

void CpuBackend::combine_rows(ConstTensorView x, std::span<const std::int32_t> to,
                              std::span<const float> weight, TensorView out) {
  const std::int64_t width = x.shape[1];
  std::fill_n(out.f32(), out.shape.elements(), 0.0f);
  for (std::size_t i = 0; i < to.size(); ++i) {
    const float* from = x.f32() + static_cast<std::int64_t>(i) * width;
    float* sum = out.f32() + to[i] * width;
    for (std::int64_t c = 0; c < width; ++c) sum[c] += weight[i] * from[c];
  }
}

void CpuBackend::store_rows(const float* rows, std::int64_t row_stride,
                            std::span<const std::int64_t> slots, TensorView cache) {
  const std::int64_t width = cache.shape[1] * cache.shape[2];
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const float* from = rows + static_cast<std::int64_t>(i) * row_stride;
    if (cache.dtype == DType::kF32) {
      std::memcpy(cache.f32() + slots[i] * width, from,
                  static_cast<std::size_t>(width) * sizeof(float));
    } else {
      std::uint16_t* to = cache.as<std::uint16_t>() + slots[i] * width;
      for (std::int64_t j = 0; j < width; ++j) to[j] = float_to_bf16(from[j]);
    }
  }
}

void CpuBackend::affine_channels(ConstTensorView x, ConstTensorView scale, ConstTensorView shift,
                                 TensorView out) {
  const std::int64_t channels = scale.shape[0];
  const std::int64_t pixels = x.shape.elements() / channels;
  pool_.parallel_for(pixels, rows_of(channels), [&](std::int64_t begin, std::int64_t end, int) {
    kernels_.affine(x.f32() + begin * channels, scale.f32(), shift.f32(), false,
                    out.f32() + begin * channels, channels, end - begin);
  });
}

// The two maps of a coarse place are joined into one before its pixels are read.
void CpuBackend::modulate(const ModulateArgs& args) {
  const std::int64_t channels = args.in.shape[2];
  const std::int64_t width = args.in.shape[1];
  const std::int64_t coarse = args.gain.shape[1];
  const std::int64_t down = args.in.shape[0] / args.gain.shape[0];
  const std::int64_t across = width / coarse;
  const auto count = static_cast<std::size_t>(channels);
  pool_.parallel_for(args.in.shape[0], 1, [&](std::int64_t row, std::int64_t end, int) {
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
        kernels_.affine(args.in.f32() + at, scale, shift, args.swish, args.out.f32() + at, channels,
                        across);
      }
    }
  });
}

}  // namespace tessera::cpu
