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
  std::int32_t* half_sums;

  std::int64_t first_row(std::int64_t tile) const { return rows * tile / tiles; }
  // The first row of a tile, whose rows are first_row(tile + 1) - first_row(tile).
  std::int64_t first_block(std::int64_t tile) const { return first_row(tile) * blocks; }
};

Rounded rounded_room(CpuBackend& cpu, std::int64_t rows, std::int64_t blocks) {
  const std::size_t all = to_size(rows * blocks);
  std::byte* const memory =
      cpu.shared_scratch(all * (kQuantBlock + sizeof(float) + 2 * sizeof(std::int32_t)));
  auto* const sums = reinterpret_cast<std::int32_t*>(memory + all * (kQuantBlock + sizeof(float)));
  return {rows,
          divide_up(rows, std::int64_t{cpu.integer_kernels().tile_rows}),
          blocks,
          reinterpret_cast<std::int8_t*>(memory),
          reinterpret_cast<float*>(memory + all * kQuantBlock),
          sums,
          sums + all};
}

// A row may end within a block, or blocks before its last one: weights have zeros there.
void round_row(const IntegerKernels& kernels, const float* x, std::int64_t k, std::int64_t blocks,
               RoundedRow out) {
  const std::int64_t whole = k / kQuantBlock;
  kernels.round_inputs(x, whole, out);
  for (std::int64_t block = whole; block < blocks; ++block) {
    std::array<float, kQuantBlock> last{};
    if (block == whole) std::copy(x + whole * kQuantBlock, x + k, last.data());
    RoundedRow at = out;
    at.numbers += block * out.stride * kQuantBlock;
    at.scales += block * out.stride;
    at.sums += block * out.stride;
    if (at.half_sums != nullptr) at.half_sums += block * out.stride;
    kernels.round_inputs(last.data(), 1, at);
  }
}

void round_rows(CpuBackend& cpu, const float* x, std::int64_t k, const IntegerTile& tile_of,
                const Rounded& out) {
  const auto part = [&](std::int64_t tile, std::int64_t end, int) {
    for (; tile < end; ++tile) {
      const std::int64_t first = out.first_row(tile), rows = out.first_row(tile + 1) - first;
      for (std::int64_t row = 0; row < rows; ++row) {
        const std::int64_t at = out.first_block(tile) + row;
        round_row(cpu.integer_kernels(), x + (first + row) * k, k, out.blocks,
                  {.numbers = out.numbers + at * kQuantBlock,
                   .scales = out.scales + at,
                   .sums = out.sums + at,
                   .half_sums = tile_of.halves ? out.half_sums + at : nullptr,
                   .stride = rows,
                   .sum_factor = tile_of.sum_factor});
      }
    }
  };
  if (out.rows * k < kSerialInputs) return part(0, out.tiles, 0);
  cpu.threads().parallel_for(out.tiles, 1, part);
}

// Rows [first, first + inputs.rows) of the op times a part of the weight.
void multiply_part(CpuBackend& cpu, const LinearArgs& op, const PanelPart& part,
                   const Rounded& inputs, std::int64_t first) {
  const LinearWeight& w = *op.weight;
  const IntegerTile& tile_of = cpu.integer_kernels().*part.storage.integer_tile;
  const auto panel_bytes = to_index(part.storage.bytes(w.k));
  const std::int64_t panels = divide_up(part.n, kLanes);
  const std::int64_t chunk = std::max<std::int64_t>(1, kTaskBytes / panel_bytes);
  cpu.threads().parallel_for(panels, chunk, [&](std::int64_t panel, std::int64_t end, int) {
    for (; panel < end; ++panel) {
      const std::int64_t own = panel * kLanes, column = part.column + own;
      for (std::int64_t tile = 0; tile < inputs.tiles; ++tile) {
        const std::int64_t from = inputs.first_row(tile), at = inputs.first_block(tile);
        tile_of.run({.a = inputs.numbers + at * kQuantBlock,
                     .scales = inputs.scales + at,
                     .sums = inputs.sums + at,
                     .half_sums = inputs.half_sums + at,
                     .blocks = inputs.blocks,
                     .b = part.panels + panel * panel_bytes,
                     .out = op.out.f32() + (first + from) * w.n + column,
                     .out_stride = w.n,
                     .columns = std::min<std::int64_t>(kLanes, part.n - own),
                     .bias = op.bias.empty() ? nullptr : op.bias.f32() + column},
                    narrow<int>(inputs.first_row(tile + 1) - from));
      }
    }
  });
}

// Whether inputs rounded for one tile do for the other.
bool alike(const IntegerTile& a, const IntegerTile& b) {
  return a.sum_factor == b.sum_factor && a.halves == b.halves;
}

}  // namespace

void linear_integers(CpuBackend& cpu, const LinearArgs& op) {
  const LinearWeight& w = *op.weight;
  for (std::int64_t first = 0; first < op.x.shape[0]; first += kRowsAtOnce) {
    const std::int64_t rows = std::min(kRowsAtOnce, op.x.shape[0] - first);
    const IntegerTile* rounded_for = nullptr;
    Rounded inputs{};
    for_each_part(w, [&](const PanelPart& part) {
      if (part.storage.integer_tile == nullptr) return;
      const IntegerTile& tile_of = cpu.integer_kernels().*part.storage.integer_tile;
      const std::int64_t blocks = part.storage.blocks_of_32(w.k);
      if (rounded_for == nullptr || !alike(*rounded_for, tile_of) || blocks != inputs.blocks) {
        inputs = rounded_room(cpu, rows, blocks);
        round_rows(cpu, op.x.f32() + first * w.k, w.k, tile_of, inputs);
        rounded_for = &tile_of;
      }
      multiply_part(cpu, op, part, inputs, first);
    });
  }
}

}  // namespace tessera::cpu
