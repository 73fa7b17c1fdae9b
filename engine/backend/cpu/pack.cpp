// Packing of weights into panels: [n / 16][k][16], columns past n are zero.
#include <algorithm>
#include <array>
#include <cstring>

#include "engine/backend/cpu/cpu_backend.h"
#include "engine/backend/cpu/panel_storage.h"
#include "engine/core/index.h"

namespace tessera::cpu {

namespace {

void write_f32(std::span<const float> inputs, std::int64_t first, int column, void* panel) {
  float* out = static_cast<float*>(panel) + first * kLanes + column;
  for (const float value : inputs) {
    *out = value;
    out += kLanes;
  }
}

void write_bf16(std::span<const float> inputs, std::int64_t first, int column, void* panel) {
  std::uint16_t* out = static_cast<std::uint16_t*>(panel) + first * kLanes + panel_slot(column);
  for (const float value : inputs) {
    *out = float_to_bf16(value);
    out += kLanes;
  }
}

// Blocks as files have them, a scale and `bytes` of numbers, taken apart: numbers of a column stand
// 16 columns apart in fours, the scales of all columns at the end of a block. Nibbles keep their
// place: low ones are inputs 0..15 of the block and high ones 16..31, in the file and here.
void write_blocks(const StorageType& type, std::byte flipped, std::span<const float> inputs,
                  std::int64_t first, int column, void* panel) {
  constexpr std::size_t kMostBytes = 2 + kQuantBlock;
  const std::size_t bytes = type.block_bytes - 2;
  std::array<std::byte, kMostBytes> block{};
  auto* out = static_cast<std::byte*>(panel) + type.bytes(first) * to_size(kLanes);
  for (std::size_t at = 0; at < inputs.size();
       at += kQuantBlock, out += type.block_bytes * kLanes) {
    const std::size_t some = std::min<std::size_t>(kQuantBlock, inputs.size() - at);
    type.write(inputs.data() + at, to_index(some), block.data());
    for (std::size_t i = 0; i < bytes; ++i) {
      out[panel_quad(narrow<int>(i), column)] = block[2 + i] ^ flipped;
    }
    std::memcpy(out + bytes * kLanes + 2 * to_size(column), block.data(), 2);
  }
}

void write_q8(std::span<const float> inputs, std::int64_t first, int column, void* panel) {
  constexpr std::byte k128More{0x80};
  write_blocks(storage_of(DType::kQ8), k128More, inputs, first, column, panel);
}

void write_q4(std::span<const float> inputs, std::int64_t first, int column, void* panel) {
  write_blocks(storage_of(DType::kQ4), std::byte{0}, inputs, first, column, panel);
}

void expand_bf16(const Kernels& kernels, const void* panel, float* out, std::int64_t count) {
  kernels.expand_panel(static_cast<const std::uint16_t*>(panel), out, count);
}

// Inputs first, first + step, ... of a source into a column; zeros without a source.
void pack_column(const PanelStorage& storage, const ConstTensorView* source, std::int64_t first,
                 std::int64_t step, std::int64_t count, int column, void* panel) {
  std::array<float, kBlock> numbers{};
  for (std::int64_t k = 0; k < count; k += kBlock) {
    const std::int64_t some = std::min<std::int64_t>(kBlock, count - k);
    if (source != nullptr) read_numbers(*source, first + k * step, step, some, numbers.data());
    storage.write({numbers.data(), to_size(some)}, k, column, panel);
  }
}

// Room for panels of so many inputs.
Tensor allocate_panels(PanelMemory& memory, const PanelStorage& storage, std::int64_t panels,
                       std::int64_t inputs) {
  const std::size_t bytes = storage.bytes(inputs);
  return {DType::kU8, {panels, to_index(bytes)}, memory.take(to_size(panels) * bytes)};
}

std::byte* panel_at(Tensor& packed, std::int64_t panel) {
  return static_cast<std::byte*>(packed.view().data) + to_size(panel * packed.shape()[1]);
}

}  // namespace

const PanelStorage& panel_storage(DType storage) {
  static const PanelStorage kTypes[] = {
      {&storage_of(DType::kF32), write_f32, &Kernels::tile_f32, nullptr, nullptr},
      {&storage_of(DType::kBF16), write_bf16, &Kernels::tile_bf16, nullptr, expand_bf16},
      {&storage_of(DType::kQ8), write_q8, nullptr, &IntegerKernels::tile_q8, nullptr},
      {&storage_of(DType::kQ4), write_q4, nullptr, &IntegerKernels::tile_q4, nullptr},
  };
  const StorageType& wanted = kept_storage(storage);
  const auto* const found = std::find_if(std::begin(kTypes), std::end(kTypes),
                                         [&](const PanelStorage& t) { return t.type == &wanted; });
  expects(found != std::end(kTypes), "the CPU has panels of this storage type");
  return *found;
}

LinearWeight CpuBackend::pack_linear(std::span<const ConstTensorView> stacked, DType storage) {
  const PanelStorage& panel_type = panel_storage(storage);
  expects(!stacked.empty(), "at least one matrix to pack");
  LinearWeight weight;
  weight.storage = storage;
  weight.k = stacked[0].shape[1];
  for (const ConstTensorView& part : stacked) {
    expects(part.shape.rank() == 2 && part.shape[1] == weight.k, "stacked matrices share inputs");
    weight.n += part.shape[0];
  }
  const std::int64_t panels = divide_up(weight.n, kLanes);
  weight.packed = allocate_panels(panel_memory_, panel_type, panels, weight.k);
  pool_.parallel_for(panels, 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t panel = begin; panel < end; ++panel) {
      for (int column = 0; column < kLanes; ++column) {
        std::int64_t row = panel * kLanes + column;
        std::size_t part = 0;
        while (part < stacked.size() && row >= stacked[part].shape[0]) {
          row -= stacked[part++].shape[0];
        }
        const ConstTensorView* const source = part < stacked.size() ? &stacked[part] : nullptr;
        pack_column(panel_type, source, row * weight.k, 1, weight.k, column,
                    panel_at(weight.packed, panel));
      }
    }
  });
  return weight;
}

ConvWeight CpuBackend::pack_conv(ConstTensorView kernel, DType storage) {
  const PanelStorage& panel_type = panel_storage(storage);
  expects(panel_type.tile != nullptr, "kernels of convolutions are kept as f32 or bf16");
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
  weight.packed = allocate_panels(panel_memory_, panel_type, panels, inputs);
  pool_.parallel_for(panels, 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t panel = begin; panel < end; ++panel) {
      for (std::int64_t tap = 0; tap < taps; ++tap) {
        std::byte* memory = panel_at(weight.packed, panel) + panel_type.bytes(tap * weight.c_in);
        for (int column = 0; column < kLanes; ++column) {
          const std::int64_t output = panel * kLanes + column;
          pack_column(panel_type, output < weight.c_out ? &kernel : nullptr, output * inputs + tap,
                      taps, weight.c_in, column, memory);
        }
      }
    }
  });
  return weight;
}

bool CpuBackend::keeps(DType storage) const { return is_storage(storage); }

std::size_t CpuBackend::packed_linear_bytes(std::int64_t n, std::int64_t k, DType storage) const {
  return to_size(divide_up(n, kLanes)) * panel_storage(storage).bytes(k);
}

std::size_t CpuBackend::packed_conv_bytes(const Shape& kernel, DType storage) const {
  return packed_linear_bytes(kernel[0], kernel[1] * kernel[2] * kernel[3], storage);
}

}  // namespace tessera::cpu
