// Matrix products with weights of blocks: inputs are rounded to 8 bits, a block's sum is one of
// integers, and the blocks of an output are one chain in order. Rows are only grouped differently,
// so their results are the same bits.
#include "engine/backend/cpu/linear_integers.h"

#include <algorithm>
#include <array>

#include "engine/core/index.h"

namespace tessera::cpu {

namespace {

constexpr std::int64_t kRowsAtOnce = 256;                       // rounded together
constexpr std::int64_t kTaskBytes = std::int64_t{128} << 10;   // weights of one task
constexpr std::int64_t kSerialInputs = std::int64_t{16} << 10;  // fewer are rounded by one thread

// Rows of rounded inputs in the scratch that all workers see.
struct Rounded {
  std::int64_t blocks;
  std::int8_t* numbers;
  float* scales;
  std::int32_t* sums;
};

Rounded rounded_room(CpuBackend& cpu, std::int64_t rows, std::int64_t blocks) {
  const std::size_t all = to_size(rows * blocks);
  std::byte* const memory = cpu.shared_scratch(all * (kQuantBlock + sizeof(float) + sizeof(int)));
  return {blocks, reinterpret_cast<std::int8_t*>(memory),
          reinterpret_cast<float*>(memory + all * kQuantBlock),
          reinterpret_cast<std::int32_t*>(memory + all * (kQuantBlock + sizeof(float)))};
}

void round_row(const IntegerKernels& kernels, const float* x, std::int64_t k, std::int64_t row,
               const Rounded& out) {
  const std::int64_t whole = k / kQuantBlock, first = row * out.blocks;
  kernels.round_inputs(x, whole, out.numbers + first * kQuantBlock, out.scales + first,
                       out.sums + first);
  if (whole == out.blocks) return;
  std::array<float, kQuantBlock> last{};
  std::copy(x + whole * kQuantBlock, x + k, last.data());
  const std::int64_t at = first + whole;
  kernels.round_inputs(last.data(), 1, out.numbers + at * kQuantBlock, out.scales + at,
                       out.sums + at);
}

void round_rows(CpuBackend& cpu, const float* x, std::int64_t rows, std::int64_t k,
                const Rounded& out) {
  const auto part = [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin; row < end; ++row) {
      round_row(cpu.integer_kernels(), x + row * k, k, row, out);
    }
  };
  if (rows * k < kSerialInputs) return part(0, rows, 0);
  cpu.threads().parallel_for(rows, divide_up(kSerialInputs, 2 * k), part);
}

}  // namespace

void linear_integers(CpuBackend& cpu, const LinearArgs& op, const PanelStorage& storage) {
  const LinearWeight& w = *op.weight;
  const IntegerKernels& kernels = cpu.integer_kernels();
  const auto run = kernels.*storage.integer_tile;
  const auto panel_bytes = to_index(storage.bytes(w.k));
  const auto* const weights = static_cast<const std::byte*>(w.packed.view().data);
  const std::int64_t panels = divide_up(w.n, kLanes), blocks = storage.type->blocks(w.k);
  for (std::int64_t first = 0; first < op.x.shape[0]; first += kRowsAtOnce) {
    const std::int64_t rows = std::min(kRowsAtOnce, op.x.shape[0] - first);
    const Rounded inputs = rounded_room(cpu, rows, blocks);
    round_rows(cpu, op.x.f32() + first * w.k, rows, w.k, inputs);
    const std::int64_t tiles = divide_up(rows, std::int64_t{kernels.tile_rows});
    const std::int64_t width = kernels.tile_panels[divide_up(rows, tiles)];
    const std::int64_t chunk =
        std::max<std::int64_t>(1, kTaskBytes / (panel_bytes * width)) * width;
    cpu.threads().parallel_for(panels, chunk, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t panel = begin; panel < end; panel += width) {
        const std::int64_t some = std::min(width, end - panel), column = panel * kLanes;
        for (std::int64_t tile = 0; tile < tiles; ++tile) {
          const std::int64_t from = rows * tile / tiles, to = rows * (tile + 1) / tiles;
          const std::int64_t at = from * blocks;
          run({.a = inputs.numbers + at * kQuantBlock,
               .scales = inputs.scales + at,
               .sums = inputs.sums + at,
               .block_stride = blocks,
               .blocks = blocks,
               .b = weights + panel * panel_bytes,
               .b_stride = panel_bytes,
               .out = op.out.f32() + (first + from) * w.n + column,
               .out_stride = w.n,
               .columns = std::min(some * kLanes, w.n - column),
               .bias = op.bias.empty() ? nullptr : op.bias.f32() + column},
              narrow<int>(to - from), narrow<int>(some));
        }
      }
    });
  }
}

}  // namespace tessera::cpu
