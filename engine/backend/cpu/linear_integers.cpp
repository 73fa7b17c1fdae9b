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
  std::int32_t* half_sums;
};

Rounded rounded_room(CpuBackend& cpu, std::int64_t rows, std::int64_t blocks) {
  const std::size_t all = to_size(rows * blocks);
  std::byte* const memory =
      cpu.shared_scratch(all * (kQuantBlock + sizeof(float) + 2 * sizeof(std::int32_t)));
  auto* const sums =
      reinterpret_cast<std::int32_t*>(memory + all * (kQuantBlock + sizeof(float)));
  return {blocks, reinterpret_cast<std::int8_t*>(memory),
          reinterpret_cast<float*>(memory + all * kQuantBlock), sums, sums + all};
}

// A row may end within a block, or blocks before its last one: weights have zeros there.
void round_row(const IntegerKernels& kernels, const float* x, std::int64_t k, std::int64_t row,
               const Rounded& out) {
  const std::int64_t whole = k / kQuantBlock, first = row * out.blocks;
  kernels.round_inputs(x, whole, out.numbers + first * kQuantBlock, out.scales + first,
                       out.sums + first);
  for (std::int64_t block = whole; block < out.blocks; ++block) {
    std::array<float, kQuantBlock> last{};
    if (block == whole) std::copy(x + whole * kQuantBlock, x + k, last.data());
    const std::int64_t at = first + block;
    kernels.round_inputs(last.data(), 1, out.numbers + at * kQuantBlock, out.scales + at,
                         out.sums + at);
  }
  kernels.half_sums(out.numbers + first * kQuantBlock, out.blocks, out.half_sums + first);
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

// Rows [first, first + rows) of the op times a part of the weight.
void multiply_part(CpuBackend& cpu, const LinearArgs& op, const PanelPart& part,
                   const Rounded& inputs, std::int64_t first, std::int64_t rows) {
  const LinearWeight& w = *op.weight;
  const IntegerKernels& kernels = cpu.integer_kernels();
  const auto run = kernels.*part.storage.integer_tile;
  const auto panel_bytes = to_index(part.storage.bytes(w.k));
  const std::int64_t panels = divide_up(part.n, kLanes), blocks = part.storage.blocks_of_32(w.k);
  const std::int64_t tiles = divide_up(rows, std::int64_t{kernels.tile_rows});
  const std::int64_t width = kernels.tile_panels[divide_up(rows, tiles)];
  const std::int64_t chunk =
      std::max<std::int64_t>(1, kTaskBytes / (panel_bytes * width)) * width;
  cpu.threads().parallel_for(panels, chunk, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t panel = begin; panel < end; panel += width) {
      const std::int64_t some = std::min(width, end - panel), own = panel * kLanes;
      const std::int64_t column = part.column + own;
      for (std::int64_t tile = 0; tile < tiles; ++tile) {
        const std::int64_t from = rows * tile / tiles, to = rows * (tile + 1) / tiles;
        const std::int64_t at = from * inputs.blocks;
        run({.a = inputs.numbers + at * kQuantBlock,
             .scales = inputs.scales + at,
             .sums = inputs.sums + at,
             .half_sums = inputs.half_sums + at,
             .block_stride = inputs.blocks,
             .blocks = blocks,
             .b = part.panels + panel * panel_bytes,
             .b_stride = panel_bytes,
             .out = op.out.f32() + (first + from) * w.n + column,
             .out_stride = w.n,
             .columns = std::min(some * kLanes, part.n - own),
             .bias = op.bias.empty() ? nullptr : op.bias.f32() + column},
            narrow<int>(to - from), narrow<int>(some));
      }
    }
  });
}

}  // namespace

void linear_integers(CpuBackend& cpu, const LinearArgs& op) {
  const LinearWeight& w = *op.weight;
  std::int64_t blocks = 0;
  for_each_part(w, [&](const PanelPart& part) {
    if (part.storage.integer_tile == nullptr) return;
    blocks = std::max(blocks, part.storage.blocks_of_32(w.k));
  });
  for (std::int64_t first = 0; first < op.x.shape[0]; first += kRowsAtOnce) {
    const std::int64_t rows = std::min(kRowsAtOnce, op.x.shape[0] - first);
    const Rounded inputs = rounded_room(cpu, rows, blocks);
    round_rows(cpu, op.x.f32() + first * w.k, rows, w.k, inputs);
    for_each_part(w, [&](const PanelPart& part) {
      if (part.storage.integer_tile == nullptr) return;
      multiply_part(cpu, op, part, inputs, first, rows);
    });
  }
}

}  // namespace tessera::cpu
