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
constexpr std::int64_t kTaskBytes = std::int64_t{128} << 10;    // weights of one task
constexpr std::int64_t kSerialInputs = std::int64_t{16} << 10;  // fewer are rounded by one thread

// Rows of rounded inputs in the scratch that all workers see, cut into tiles of nearly the same
// number of rows; a tile's rows stand side by side.
struct Rounded {
  std::int64_t rows, tiles, blocks;
  std::int8_t* numbers;
  float* scales;
  std::int32_t* sums;

  std::int64_t first_row(std::int64_t tile) const { return rows * tile / tiles; }
  // The first row of a tile, whose rows are first_row(tile + 1) - first_row(tile).
  std::int64_t first_block(std::int64_t tile) const { return first_row(tile) * blocks; }
};

Rounded rounded_room(CpuBackend& cpu, std::int64_t rows, std::int64_t blocks) {
  const std::size_t all = to_size(rows * blocks);
  std::byte* const memory = cpu.shared_scratch(all * (kQuantBlock + sizeof(float) + sizeof(int)));
  return {rows,
          divide_up(rows, std::int64_t{cpu.integer_kernels().tile_rows}),
          blocks,
          reinterpret_cast<std::int8_t*>(memory),
          reinterpret_cast<float*>(memory + all * kQuantBlock),
          reinterpret_cast<std::int32_t*>(memory + all * (kQuantBlock + sizeof(float)))};
}

void round_row(const IntegerKernels& kernels, const float* x, std::int64_t k, RoundedRow out) {
  const std::int64_t whole = k / kQuantBlock;
  kernels.round_inputs(x, whole, out);
  if (whole * kQuantBlock == k) return;
  std::array<float, kQuantBlock> last{};
  std::copy(x + whole * kQuantBlock, x + k, last.data());
  out.numbers += whole * out.stride * kQuantBlock;
  out.scales += whole * out.stride;
  out.sums += whole * out.stride;
  kernels.round_inputs(last.data(), 1, out);
}

void round_rows(CpuBackend& cpu, const float* x, std::int64_t k, std::int32_t sum_factor,
                const Rounded& out) {
  const auto part = [&](std::int64_t tile, std::int64_t end, int) {
    for (; tile < end; ++tile) {
      const std::int64_t first = out.first_row(tile), rows = out.first_row(tile + 1) - first;
      for (std::int64_t row = 0; row < rows; ++row) {
        const std::int64_t at = out.first_block(tile) + row;
        round_row(
            cpu.integer_kernels(), x + (first + row) * k, k,
            {out.numbers + at * kQuantBlock, out.scales + at, out.sums + at, rows, sum_factor});
      }
    }
  };
  if (out.rows * k < kSerialInputs) return part(0, out.tiles, 0);
  cpu.threads().parallel_for(out.tiles, 1, part);
}

}  // namespace

void linear_integers(CpuBackend& cpu, const LinearArgs& op, const PanelStorage& storage) {
  const LinearWeight& w = *op.weight;
  const IntegerTile& tile_of = cpu.integer_kernels().*storage.integer_tile;
  const auto panel_bytes = to_index(storage.bytes(w.k));
  const auto* const weights = static_cast<const std::byte*>(w.packed.view().data);
  const std::int64_t panels = divide_up(w.n, kLanes), blocks = storage.type->blocks(w.k);
  const std::int64_t chunk = std::max<std::int64_t>(1, kTaskBytes / panel_bytes);
  for (std::int64_t first = 0; first < op.x.shape[0]; first += kRowsAtOnce) {
    const std::int64_t rows = std::min(kRowsAtOnce, op.x.shape[0] - first);
    const Rounded inputs = rounded_room(cpu, rows, blocks);
    round_rows(cpu, op.x.f32() + first * w.k, w.k, tile_of.sum_factor, inputs);
    cpu.threads().parallel_for(panels, chunk, [&](std::int64_t panel, std::int64_t end, int) {
      for (; panel < end; ++panel) {
        const std::int64_t column = panel * kLanes;
        for (std::int64_t tile = 0; tile < inputs.tiles; ++tile) {
          const std::int64_t from = inputs.first_row(tile), at = inputs.first_block(tile);
          tile_of.run({.a = inputs.numbers + at * kQuantBlock,
                       .scales = inputs.scales + at,
                       .sums = inputs.sums + at,
                       .blocks = blocks,
                       .b = weights + panel * panel_bytes,
                       .out = op.out.f32() + (first + from) * w.n + column,
                       .out_stride = w.n,
                       .columns = std::min<std::int64_t>(kLanes, w.n - column),
                       .bias = op.bias.empty() ? nullptr : op.bias.f32() + column},
                      narrow<int>(inputs.first_row(tile + 1) - from));
        }
      }
    });
  }
}

}  // namespace tessera::cpu
