// Packing of weights into panels: [n / 16][k][16], columns past n are zero.
#include <algorithm>
#include <array>
#include <vector>

#include "engine/backend/cpu/block_place.h"
#include "engine/backend/cpu/cpu_backend.h"
#include "engine/backend/cpu/panel_storage.h"
#include "engine/backend/linear_parts.h"
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

// From input `first` of a panel of numbers of 16 bits on.
std::uint16_t* short_numbers(void* panel, std::int64_t first) {
  return static_cast<std::uint16_t*>(panel) + first * kLanes;
}

void write_bf16(std::span<const float> inputs, std::int64_t first, int column, void* panel) {
  std::uint16_t* out = short_numbers(panel, first) + panel_slot(column);
  for (const float value : inputs) {
    *out = float_to_bf16(value);
    out += kLanes;
  }
}

// Two inputs of a column next to each other; one that is left over at a row's end is among those of
// the other columns. Numbers below 2^-126 become zeros, as products would take them.
void write_pairs(std::span<const float> inputs, std::int64_t first, int column, void* panel) {
  std::uint16_t* const out = short_numbers(panel, first);
  const auto count = std::ssize(inputs);
  for (std::int64_t i = 0; i < count; ++i) {
    const bool alone = i % 2 == 0 && i + 1 == count;
    const std::uint16_t bits = float_to_bf16(nth(inputs, i));
    const bool tiny = (bits & 0x7f80u) == 0;
    out[i / 2 * 2 * kLanes + (alone ? column : 2 * column + i % 2)] =
        tiny ? low_bits<std::uint16_t>(bits & 0x8000u) : bits;
  }
}

void write_f16(std::span<const float> inputs, std::int64_t first, int column, void* panel) {
  std::uint16_t* out = short_numbers(panel, first) + column;
  for (const float value : inputs) {
    *out = float_to_f16(value);
    out += kLanes;
  }
}

void expand_bf16(const Kernels& kernels, const void* panel, float* out, std::int64_t count) {
  kernels.expand_panel(static_cast<const std::uint16_t*>(panel), out, count);
}

void expand_f16(const Kernels& kernels, const void* panel, float* out, std::int64_t count) {
  kernels.expand_halves(static_cast<const std::uint16_t*>(panel), out, count);
}

constexpr std::size_t kMaxBytes = kBlock * sizeof(float);  // of kBlock inputs of any type

// kBlock inputs or fewer of one row, as blocks of the type; zeros without a source.
std::span<const std::byte> blocks_of(const StorageType& type, const ConstTensorView* source,
                                     std::int64_t first, std::int64_t count,
                                     std::array<std::byte, kMaxBytes>& room) {
  const std::size_t bytes = type.bytes(count);
  if (source == nullptr) {
    std::fill_n(room.begin(), bytes, std::byte{0});
  } else if (source->dtype == type.dtype) {
    return {source->raw() + type.bytes(first), bytes};
  } else {
    expects(type.write != nullptr, "weights of this type are made by files alone");
    std::array<float, kBlock> numbers{};
    read_numbers(*source, first, 1, count, numbers.data());
    type.write(numbers.data(), count, room.data());
  }
  return {room.data(), bytes};
}

// Inputs first, first + step, ... of a source into a column; zeros without a source.
void pack_column(const PanelStorage& storage, const ConstTensorView* source, std::int64_t first,
                 std::int64_t step, std::int64_t count, int column, void* panel) {
  std::array<float, kBlock> numbers{};
  std::array<std::byte, kMaxBytes> room;
  for (std::int64_t k = 0; k < count; k += kBlock) {
    const std::int64_t some = std::min<std::int64_t>(kBlock, count - k);
    if (storage.place != nullptr) {
      storage.place(blocks_of(*storage.type, source, first + k, some, room), k, column, panel);
      continue;
    }
    if (source != nullptr) read_numbers(*source, first + k * step, step, some, numbers.data());
    storage.write({numbers.data(), to_size(some)}, k, column, panel);
  }
}

PanelStorage of_numbers(DType type, decltype(PanelStorage::write) write,
                     decltype(PanelStorage::tile) tile, decltype(PanelStorage::expand) expand) {
  const StorageType& kept = storage_of(type);
  return {&kept, kept.block_bytes, write, nullptr, tile, nullptr, nullptr, expand};
}

PanelStorage of_blocks(DType type, const BlockPlace& place,
                    decltype(PanelStorage::integer_tile) tile) {
  return {&storage_of(type), place.block_bytes, nullptr, place.place, nullptr, tile, nullptr, nullptr};
}

}  // namespace

const PanelStorage& panel_storage(DType storage) {
  using Tile = IntegerKernels;
  static const PanelStorage kTypes[] = {
      of_numbers(DType::kF32, write_f32, &Kernels::tile_f32, nullptr),
      of_numbers(DType::kBF16, write_bf16, &Kernels::tile_bf16, expand_bf16),
      of_numbers(DType::kF16, write_f16, &Kernels::tile_f16, expand_f16),
      of_blocks(DType::kQ8, kQ8Place, &Tile::tile_q8),
      of_blocks(DType::kQ4, kQ4Place, &Tile::tile_q4),
      of_blocks(DType::kQ4_1, kQ4_1Place, &Tile::tile_q4_1),
      of_blocks(DType::kQ5_0, kQ5_0Place, &Tile::tile_q5_0),
      of_blocks(DType::kQ5_1, kQ5_1Place, &Tile::tile_q5_1),
      of_blocks(DType::kQ2K, kQ2KPlace, &Tile::tile_q2_k),
      of_blocks(DType::kQ3K, kQ3KPlace, &Tile::tile_q3_k),
      of_blocks(DType::kQ4K, kQ4KPlace, &Tile::tile_q4_k),
      of_blocks(DType::kQ5K, kQ5KPlace, &Tile::tile_q5_k),
      of_blocks(DType::kQ6K, kQ6KPlace, &Tile::tile_q6_k),
  };
  const StorageType& wanted = kept_storage(storage);
  const auto* const found = std::find_if(std::begin(kTypes), std::end(kTypes),
                                         [&](const PanelStorage& t) { return t.type == &wanted; });
  expects(found != std::end(kTypes), "the CPU has panels of this storage type");
  return *found;
}

const PanelStorage& matrix_storage(DType storage, CpuOptions::Inputs inputs) {
  static const PanelStorage kPairs{&storage_of(DType::kBF16), sizeof(std::uint16_t), write_pairs,
                                   nullptr, nullptr, nullptr, &PairKernels::multiply, nullptr};
  const bool pairs = inputs == CpuOptions::Inputs::kBF16 && storage == DType::kBF16;
  return pairs ? kPairs : panel_storage(storage);
}

namespace {

// Rows of matrices one after the other, into panels of their own.
void pack_rows(ThreadPool& pool, std::span<const ConstTensorView> stacked, std::int64_t rows,
               std::int64_t inputs, const PanelStorage& storage, std::byte* memory) {
  const std::size_t panel_bytes = storage.bytes(inputs);
  pool.parallel_for(divide_up(rows, kLanes), 1, [&](std::int64_t panel, std::int64_t end, int) {
    for (; panel < end; ++panel) {
      for (int column = 0; column < kLanes; ++column) {
        std::int64_t row = panel * kLanes + column;
        std::size_t part = 0;
        while (part < stacked.size() && row >= stacked[part].shape[0]) {
          row -= stacked[part++].shape[0];
        }
        const ConstTensorView* const source = part < stacked.size() ? &stacked[part] : nullptr;
        pack_column(storage, source, row * inputs, 1, inputs, column,
                    memory + to_size(panel) * panel_bytes);
      }
    }
  });
}

}  // namespace

LinearWeight CpuBackend::pack_linear(std::span<const ConstTensorView> stacked, DType storage) {
  LinearWeight weight;
  const std::vector<StackedPart> parts = split_stacked(stacked, storage, weight);
  std::size_t bytes = 0;
  for (const auto& [part, sources] : parts) {
    bytes += packed_linear_bytes(part.n, weight.k, part.storage);
  }
  weight.packed = {DType::kU8, {to_index(bytes)}, panel_memory_.take(bytes)};
  auto* memory = weight.packed.view().raw();
  for (const auto& [part, sources] : parts) {
    pack_rows(pool_, sources, part.n, weight.k, matrix_storage(part.storage, inputs_), memory);
    memory += packed_linear_bytes(part.n, weight.k, part.storage);
  }
  return weight;
}

ConvWeight CpuBackend::pack_conv(ConstTensorView kernel, DType storage) {
  const PanelStorage& panel_type = panel_storage(storage);
  expects(panel_type.tile != nullptr, "kernels of convolutions are kept as numbers");
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
  const std::size_t panel_bytes = panel_type.bytes(inputs);
  weight.packed = {DType::kU8, {panels, to_index(panel_bytes)},
                   panel_memory_.take(to_size(panels) * panel_bytes)};
  auto* const panel_memory = weight.packed.view().raw();
  pool_.parallel_for(panels, 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t panel = begin; panel < end; ++panel) {
      for (std::int64_t tap = 0; tap < taps; ++tap) {
        std::byte* memory =
            panel_memory + to_size(panel) * panel_bytes + panel_type.bytes(tap * weight.c_in);
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

bool CpuBackend::keeps(DType storage) const {
  return storage == DType::kFile || is_storage(storage);
}

std::size_t CpuBackend::packed_linear_bytes(std::int64_t n, std::int64_t k, DType storage) const {
  return to_size(divide_up(n, kLanes)) * panel_storage(storage).bytes(k);
}

std::size_t CpuBackend::packed_conv_bytes(const Shape& kernel, DType storage) const {
  return packed_linear_bytes(kernel[0], kernel[1] * kernel[2] * kernel[3], storage);
}

}  // namespace tessera::cpu
