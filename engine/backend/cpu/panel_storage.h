// Storage types as the CPU has them: how a type stands in a panel of 16 columns, and what
// multiplies it. One row a type; the products themselves do not ask which type a weight is of.
#pragma once

#include <cstdint>
#include <span>

#include "engine/backend/backend.h"
#include "engine/backend/cpu/kernels/kernels.h"
#include "engine/core/index.h"
#include "engine/core/storage.h"

namespace tessera::cpu {

struct PanelStorage {
  const StorageType* type;
  // What a block of the type takes of a column.
  std::size_t block_bytes;
  // One column's inputs from input `first` on into a panel: numbers, or blocks as the type has them.
  // Exactly one of the two is there.
  void (*write)(std::span<const float> inputs, std::int64_t first, int column, void* panel);
  void (*place)(std::span<const std::byte> blocks, std::int64_t first, int column, void* panel);
  // The product right from what is stored; panels lie b_stride numbers apart.
  void (*Kernels::*tile)(const TileArgs& args, int rows, int panels);
  // The same of blocks, whole rows at a time; exactly one of the two is there.
  IntegerTile IntegerKernels::*integer_tile;
  // `count` inputs of a panel as f32 [count][16]; null where they are that already.
  void (*expand)(const Kernels& kernels, const void* panel, float* out, std::int64_t count);

  // From one input of a panel to the input `count` further on.
  std::size_t bytes(std::int64_t count) const {
    return to_size(type->blocks(count)) * block_bytes * to_size(kLanes);
  }
  // Blocks of inputs of a row, of a product of integers.
  std::int64_t blocks_of_32(std::int64_t count) const {
    return type->blocks(count) * type->block / kQuantBlock;
  }
};

const PanelStorage& panel_storage(DType storage);

// Outputs of a weight that are kept alike.
struct PanelPart {
  const PanelStorage& storage;
  const std::byte* panels;
  std::int64_t column, n;  // the first of the weight's outputs, and how many
};

// part(PanelPart) for all of a weight, in order. Each part begins with a panel of its own.
template <typename F>
void for_each_part(const LinearWeight& weight, F part) {
  const auto* panels = static_cast<const std::byte*>(weight.packed.view().data);
  if (weight.parts.empty()) {
    return part(PanelPart{panel_storage(weight.storage), panels, 0, weight.n});
  }
  std::int64_t column = 0;
  for (const LinearPart& own : weight.parts) {
    const PanelStorage& storage = panel_storage(own.storage);
    part(PanelPart{storage, panels, column, own.n});
    panels += to_size(divide_up(own.n, kLanes)) * storage.bytes(weight.k);
    column += own.n;
  }
}

}  // namespace tessera::cpu
