// Matrix products of bf16 inputs and bf16 weights: rows are rounded once, in groups that stay in a
// core's cache while all panels pass by. Rows are only grouped differently, so their results are
// the same bits.
#include "engine/backend/cpu/linear_pairs.h"

#include <algorithm>

#include "engine/backend/cpu/panel_storage.h"
#include "engine/backend/cpu/streaming.h"
#include "engine/core/index.h"

namespace tessera::cpu {

namespace {

constexpr std::int64_t kGroupBytes = std::int64_t{512} << 10;   // of rounded rows

// Rows [first, first + rows) of the op as PairArgs::a has them, in the scratch that all workers
// see.
std::uint32_t* round_rows(CpuBackend& cpu, const LinearArgs& op, std::int64_t first,
                          std::int64_t rows) {
  const PairKernels& kernels = cpu.pair_kernels();
  const std::int64_t k_all = op.weight->k, tiles = pair_tiles(rows, kernels.tile_rows);
  auto* const out = reinterpret_cast<std::uint32_t*>(
      cpu.shared_scratch(to_size(rows * divide_up(k_all, 2)) * sizeof(std::uint32_t)));
  const auto part = [&](std::int64_t tile, std::int64_t end, int) {
    for (; tile < end; ++tile) {
      const std::int64_t row = rows * tile / tiles, stride = rows * (tile + 1) / tiles - row;
      for (std::int64_t r = 0; r < stride; ++r) {
        const float* const x = op.x.f32() + (first + row + r) * k_all;
        for (std::int64_t k = 0; k < k_all; k += kBlock) {
          const std::int64_t inputs = std::min<std::int64_t>(kBlock, k_all - k);
          kernels.round(x + k, inputs, stride, out + rows * k / 2 + row * divide_up(inputs, 2) + r);
        }
      }
    }
  };
  if (rows * k_all < kSerialInputs) {
    part(0, tiles, 0);
  } else {
    cpu.threads().parallel_for(tiles, 1, part);
  }
  return out;
}

void multiply_part(CpuBackend& cpu, const LinearArgs& op, const PanelPart& part,
                   const std::uint32_t* inputs, std::int64_t first, std::int64_t rows) {
  constexpr std::int64_t kWidest = 4;  // panels of a tile
  const LinearWeight& w = *op.weight;
  const auto panel_bytes = to_index(part.storage.bytes(w.k));
  const std::int64_t panels = divide_up(part.n, kLanes);
  const std::int64_t task = streaming_task_bytes(panels * panel_bytes, cpu.threads().threads());
  const std::int64_t chunk = std::max<std::int64_t>(1, task / (panel_bytes * kWidest)) * kWidest;
  cpu.threads().parallel_for(panels, chunk, [&](std::int64_t panel, std::int64_t end, int) {
    const std::int64_t own = panel * kLanes, column = part.column + own;
    (cpu.pair_kernels().*part.storage.pair_tile)(
        {.a = inputs,
         .rows = rows,
         .k = w.k,
         .b = reinterpret_cast<const std::uint16_t*>(part.panels + panel * panel_bytes),
         .panels = end - panel,
         .out = op.out.f32() + first * w.n + column,
         .out_stride = w.n,
         .columns = std::min((end - panel) * kLanes, part.n - own),
         .bias = op.bias.empty() ? nullptr : op.bias.f32() + column});
  });
}

}  // namespace

void linear_pairs(CpuBackend& cpu, const LinearArgs& op) {
  const LinearWeight& w = *op.weight;
  const std::int64_t tile = cpu.pair_kernels().tile_rows;
  const std::int64_t group = std::max<std::int64_t>(1, kGroupBytes / (2 * w.k * tile)) * tile;
  for (std::int64_t first = 0; first < op.x.shape[0]; first += group) {
    const std::int64_t rows = std::min(group, op.x.shape[0] - first);
    const std::uint32_t* const inputs = round_rows(cpu, op, first, rows);
    for_each_part(w, cpu.inputs(), [&](const PanelPart& part) {
      if (part.storage.pair_tile != nullptr) multiply_part(cpu, op, part, inputs, first, rows);
    });
  }
}

}  // namespace tessera::cpu
