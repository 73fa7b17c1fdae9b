// Packing of weights into panels: [n / 16][k][16], columns past n are zero.
#include <algorithm>

#include "engine/backend/cpu/cpu_backend.h"

namespace tessera::cpu {

namespace {

float read_element(const ConstTensorView& view, std::int64_t index) {
  switch (view.dtype) {
    case DType::kF32:
      return static_cast<const float*>(view.data)[index];
    case DType::kBF16:
      return bf16_to_float(static_cast<const std::uint16_t*>(view.data)[index]);
    case DType::kF16:
      return f16_to_float(static_cast<const std::uint16_t*>(view.data)[index]);
    default:
      break;
  }
  expects(false, "weights are packed from f32, bf16 or f16");
  return 0.0f;
}

// Writes one panel column: `count` inputs of one output, source element k at source + k * step.
void pack_column(const ConstTensorView& source, std::int64_t first, std::int64_t step,
                 std::int64_t count, int column, DType storage, void* panel) {
  if (storage == DType::kF32) {
    float* out = static_cast<float*>(panel) + column;
    for (std::int64_t k = 0; k < count; ++k) {
      out[k * kLanes] = read_element(source, first + k * step);
    }
  } else {
    std::uint16_t* out = static_cast<std::uint16_t*>(panel) + panel_slot(column);
    for (std::int64_t k = 0; k < count; ++k) {
      out[k * kLanes] = float_to_bf16(read_element(source, first + k * step));
    }
  }
}

void clear_column(std::int64_t count, int column, DType storage, void* panel) {
  for (std::int64_t k = 0; k < count; ++k) {
    if (storage == DType::kF32) {
      static_cast<float*>(panel)[k * kLanes + column] = 0.0f;
    } else {
      static_cast<std::uint16_t*>(panel)[k * kLanes + panel_slot(column)] = 0;
    }
  }
}

std::byte* panel_at(Tensor& packed, std::int64_t panel, std::int64_t k) {
  return static_cast<std::byte*>(packed.view().data) +
         static_cast<std::size_t>(panel * k * kLanes) * dtype_size(packed.dtype());
}

}  // namespace

LinearWeight CpuBackend::pack_linear(std::span<const ConstTensorView> stacked, DType storage) {
  expects(storage == DType::kF32 || storage == DType::kBF16, "weights are stored as f32 or bf16");
  expects(!stacked.empty(), "at least one matrix to pack");
  LinearWeight weight;
  weight.storage = storage;
  weight.k = stacked[0].shape[1];
  for (const ConstTensorView& part : stacked) {
    expects(part.shape.rank() == 2 && part.shape[1] == weight.k, "stacked matrices share inputs");
    weight.n += part.shape[0];
  }
  const std::int64_t panels = divide_up(weight.n, kLanes);
  weight.packed = Tensor::host(storage, {panels, weight.k, kLanes});
  pool_.parallel_for(panels, 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t panel = begin; panel < end; ++panel) {
      void* memory = panel_at(weight.packed, panel, weight.k);
      for (int column = 0; column < kLanes; ++column) {
        std::int64_t row = panel * kLanes + column;
        std::size_t part = 0;
        while (part < stacked.size() && row >= stacked[part].shape[0]) {
          row -= stacked[part++].shape[0];
        }
        if (part < stacked.size()) {
          pack_column(stacked[part], row * weight.k, 1, weight.k, column, storage, memory);
        } else {
          clear_column(weight.k, column, storage, memory);
        }
      }
    }
  });
  return weight;
}

ConvWeight CpuBackend::pack_conv(ConstTensorView kernel, DType storage) {
  expects(storage == DType::kF32 || storage == DType::kBF16, "weights are stored as f32 or bf16");
  expects(kernel.shape.rank() == 4, "a kernel is [c_out, c_in, kh, kw]");
  ConvWeight weight;
  weight.storage = storage;
  weight.c_out = kernel.shape[0];
  weight.c_in = kernel.shape[1];
  weight.kh = kernel.shape[2];
  weight.kw = kernel.shape[3];
  const std::int64_t taps = weight.kh * weight.kw;
  const std::int64_t inputs = taps * weight.c_in;  // tap outer, channel inner
  const std::int64_t panels = divide_up(weight.c_out, kLanes);
  weight.packed = Tensor::host(storage, {panels, inputs, kLanes});
  pool_.parallel_for(panels, 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t panel = begin; panel < end; ++panel) {
      for (std::int64_t tap = 0; tap < taps; ++tap) {
        void* memory = panel_at(weight.packed, panel, inputs) +
                       static_cast<std::size_t>(tap * weight.c_in * kLanes) * dtype_size(storage);
        for (int column = 0; column < kLanes; ++column) {
          const std::int64_t output = panel * kLanes + column;
          if (output < weight.c_out) {
            pack_column(kernel, output * inputs + tap, taps, weight.c_in, column, storage, memory);
          } else {
            clear_column(weight.c_in, column, storage, memory);
          }
        }
      }
    }
  });
  return weight;
}

std::size_t CpuBackend::packed_linear_bytes(std::int64_t n, std::int64_t k, DType storage) const {
  return static_cast<std::size_t>(divide_up(n, kLanes) * k * kLanes) * dtype_size(storage);
}

std::size_t CpuBackend::packed_conv_bytes(const Shape& kernel, DType storage) const {
  return packed_linear_bytes(kernel[0], kernel[1] * kernel[2] * kernel[3], storage);
}

}  // namespace tessera::cpu
