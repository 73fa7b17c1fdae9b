// Storage types as the CPU has them: how a type stands in a panel of 16 columns, and what
// multiplies it. One row a type; the products themselves do not ask which type a weight is of.
#pragma once

#include <cstdint>
#include <span>

#include "engine/backend/cpu/kernels/kernels.h"
#include "engine/core/index.h"
#include "engine/core/storage.h"

namespace tessera::cpu {

struct PanelStorage {
  const StorageType* type;
  // One column's inputs from input `first` on, whole blocks of them, into a panel.
  void (*write)(std::span<const float> inputs, std::int64_t first, int column, void* panel);
  // The product right from what is stored; panels lie b_stride blocks of the type apart.
  void (*Kernels::*tile)(const TileArgs& args, int rows, int panels);
  // The same of blocks, whole rows at a time; exactly one of the two is there.
  IntegerTile IntegerKernels::*integer_tile;
  // `count` inputs of a panel as f32 [count][16]; null where they are that already.
  void (*expand)(const Kernels& kernels, const void* panel, float* out, std::int64_t count);

  // From one input of a panel to the input `count` further on.
  std::size_t bytes(std::int64_t count) const { return type->bytes(count) * to_size(kLanes); }
};

const PanelStorage& panel_storage(DType storage);

}  // namespace tessera::cpu
