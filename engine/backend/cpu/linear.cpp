// Matrix products with f32 inputs. One routine serves one row, a guided pair and a prefill of
// thousands: blocks of 256 inputs in order, each one chain of fused multiply-adds per output. Rows
// are only grouped differently, so their results are the same bits.
#include <algorithm>
#include <cstring>

#include "engine/backend/cpu/cpu_backend.h"
#include "engine/backend/cpu/linear_integers.h"
#include "engine/backend/cpu/linear_pairs.h"
#include "engine/backend/cpu/panel_storage.h"
#include "engine/backend/cpu/streaming.h"
#include "engine/core/index.h"
#include "engine/ops/linear.h"

namespace tessera::cpu {

namespace {

constexpr std::int64_t kStreamRows = 64;  // up to here all rows pass while a panel streams by
constexpr std::int64_t kRowBlock = 192;   // rows of a task beyond that, copied to scratch
constexpr std::int64_t kRowPitch = kBlock + 16;  // floats between copied rows: no cache set twice
constexpr std::int64_t kExpanded = 2;            // panels of blocks that are expanded together

struct Product {
  const float* x;
  const LinearWeight& weight;
  const PanelPart& part;
  const PanelStorage& storage;
  const float* bias;  // of the part, like `out`
  float* out;
  const Kernels& kernels;
  const IntegerTile* blocks;  // null where the part is kept as numbers
};

// Panels that meet the largest tile of `rows` rows together.
std::int64_t panels_at_once(const Product& product, std::int64_t rows) {
  const Kernels& kernels = product.kernels;
  const std::int64_t largest = divide_up(rows, divide_up(rows, kernels.tile_rows));
  const std::int64_t panels = kernels.tile_panels[largest];
  return product.blocks != nullptr ? std::min(panels, kExpanded) : panels;
}

const std::byte* panel_block(const Product& product, std::int64_t panel, std::int64_t k) {
  return product.part.panels +
         to_size(panel) * product.storage.bytes(product.weight.k) + product.storage.bytes(k);
}

// `inputs` inputs of a panel from input k on as f32 [inputs][16], and zeros to the end of a block.
void expand_block(const Product& product, std::int64_t panel, std::int64_t k, std::int64_t inputs,
                  float* out) {
  const std::byte* const from = panel_block(product, panel, k);
  if (product.blocks != nullptr) {
    return product.blocks->expand(from, product.storage.blocks_of_32(inputs), out);
  }
  product.storage.expand(product.kernels, from, out, inputs);
}

// Block [k, k + inputs) of `rows` rows against panels [panel, panel + panels). `a` points at the
// block's first input of the first row. `expanded` has room for `panels` f32 panel blocks.
void multiply_block(const Product& product, const float* a, std::int64_t a_stride, std::int64_t row,
                    std::int64_t rows, std::int64_t panel, std::int64_t panels, std::int64_t k,
                    float* expanded) {
  const Kernels& kernels = product.kernels;
  const LinearWeight& weight = product.weight;
  const std::int64_t inputs = std::min<std::int64_t>(kBlock, weight.k - k);
  const std::int64_t tiles = divide_up(rows, kernels.tile_rows);
  const std::int64_t offset = 0;
  TileArgs args;
  args.a_stride = a_stride;
  args.run_offsets = &offset;
  args.run_length = inputs;
  args.out_stride = weight.n;
  args.columns = std::min<std::int64_t>(panels * kLanes, product.part.n - panel * kLanes);
  args.bias =
      product.bias != nullptr && k + inputs == weight.k ? product.bias + panel * kLanes : nullptr;
  args.first = k == 0;
  auto run = kernels.tile_f32;
  if (product.blocks != nullptr || (product.storage.expand != nullptr && tiles > 1)) {
    for (std::int64_t p = 0; p < panels; ++p) {
      expand_block(product, panel + p, k, inputs, expanded + p * kBlock * kLanes);
    }
    args.b = expanded;
    args.b_stride = kBlock * kLanes;
  } else {
    args.b = panel_block(product, panel, k);
    args.b_stride = weight.k * kLanes;
    if (k + inputs == weight.k && (panel + 2 * panels) * kLanes <= product.part.n) {
      args.b_next = panel_block(product, panel + panels, 0);
    }
    run = kernels.*product.storage.tile;
  }
  for (std::int64_t tile = 0; tile < tiles; ++tile) {
    const std::int64_t begin = rows * tile / tiles;
    const std::int64_t end = rows * (tile + 1) / tiles;
    args.a = a + begin * a_stride;
    args.out = product.out + (row + begin) * weight.n + panel * kLanes;
    args.from_memory = tile == 0 && args.b != expanded;
    run(args, narrow<int>(end - begin), narrow<int>(panels));
  }
}

// Few rows: each panel passes once, from memory.
void stream_panels(const Product& product, std::int64_t rows, std::int64_t begin, std::int64_t end,
                   float* scratch) {
  const std::int64_t k_all = product.weight.k;
  const std::int64_t width = panels_at_once(product, rows);
  for (std::int64_t panel = begin; panel < end; panel += width) {
    const std::int64_t panels = std::min(width, end - panel);
    for (std::int64_t k = 0; k < k_all; k += kBlock) {
      multiply_block(product, product.x + k, k_all, 0, rows, panel, panels, k, scratch);
    }
  }
}

// Many rows: a block of rows is copied next to itself and meets every panel of the task from cache.
void multiply_rows(const Product& product, std::int64_t row, std::int64_t rows, std::int64_t begin,
                   std::int64_t end, float* scratch) {
  const std::int64_t k_all = product.weight.k;
  const std::int64_t width = panels_at_once(product, rows);
  float* copy = scratch + 2 * kBlock * kLanes;
  for (std::int64_t k = 0; k < k_all; k += kBlock) {
    const auto bytes = to_size(std::min<std::int64_t>(kBlock, k_all - k)) * sizeof(float);
    for (std::int64_t r = 0; r < rows; ++r) {
      std::memcpy(copy + r * kRowPitch, product.x + (row + r) * k_all + k, bytes);
    }
    for (std::int64_t panel = begin; panel < end; panel += width) {
      multiply_block(product, copy, kRowPitch, row, rows, panel, std::min(width, end - panel), k,
                     scratch);
    }
  }
}

void multiply_part(CpuBackend& cpu, const LinearArgs& op, const PanelPart& part) {
  const LinearWeight& w = *op.weight;
  const std::int64_t rows = op.x.shape[0];
  ThreadPool& pool = cpu.threads();
  const Product product{op.x.f32(),
                        w,
                        part,
                        part.storage,
                        op.bias.empty() ? nullptr : op.bias.f32() + part.column,
                        op.out.f32() + part.column,
                        cpu.kernels(),
                        part.storage.integer_tile == nullptr
                            ? nullptr
                            : &(cpu.integer_kernels().*part.storage.integer_tile)};
  const std::int64_t panels = divide_up(part.n, kLanes);
  if (rows <= kStreamRows) {
    const std::int64_t width = panels_at_once(product, rows);
    const auto panel_bytes = to_index(product.storage.bytes(w.k));
    const std::int64_t task = streaming_task_bytes(panels * panel_bytes, pool.threads());
    const std::int64_t chunk = std::max<std::int64_t>(1, task / (panel_bytes * width)) * width;
    pool.parallel_for(panels, chunk, [&](std::int64_t begin, std::int64_t end, int worker) {
      stream_panels(product, rows, begin, end, cpu.scratch(worker));
    });
    return;
  }
  const std::int64_t row_blocks = divide_up(rows, kRowBlock);
  const std::int64_t groups = std::clamp<std::int64_t>(divide_up(4 * pool.threads(), row_blocks),
                                                       divide_up(panels, 32), divide_up(panels, 2));
  pool.parallel_for(row_blocks * groups, 1, [&](std::int64_t task, std::int64_t last, int worker) {
    for (; task < last; ++task) {
      const std::int64_t block = task / groups;
      const std::int64_t group = task % groups;
      // Even cuts, so that a task of the two-panel tile does not end in half a pair.
      const std::int64_t pairs = divide_up(panels, 2);
      const std::int64_t begin = pairs * group / groups * 2;
      const std::int64_t end = std::min(pairs * (group + 1) / groups * 2, panels);
      multiply_rows(product, rows * block / row_blocks,
                    rows * (block + 1) / row_blocks - rows * block / row_blocks, begin, end,
                    cpu.scratch(worker));
    }
  });
}

void linear(CpuBackend& cpu, const LinearArgs& op) {
  if (op.x.shape[0] == 0 || op.weight->n == 0) return;
  bool integers = false, pairs = false;
  for_each_part(*op.weight, cpu.inputs(), [&](const PanelPart& part) {
    if (part.storage.pair_tile != nullptr) {
      pairs = true;
    } else if (part.storage.integer_tile != nullptr && !cpu.precise()) {
      integers = true;
    } else {
      multiply_part(cpu, op, part);
    }
  });
  if (integers) linear_integers(cpu, op);
  if (pairs) linear_pairs(cpu, op);
}

}  // namespace

void add_linear_ops(OpTable& table) { table.add<linear>(); }

}  // namespace tessera::cpu
