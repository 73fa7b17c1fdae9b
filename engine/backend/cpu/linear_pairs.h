// Matrix products of bf16 inputs and bf16 weights (CpuOptions::Inputs::kBF16).
#pragma once

#include "engine/backend/cpu/cpu_backend.h"
#include "engine/ops/linear.h"

namespace tessera::cpu {

// Inputs are rounded to bf16, each by itself; products are exact, sums f32 in one order for every
// number of rows and every instruction set (kernels/pair_tile.h).
// Parts of the weight that are of other types are left out.
void linear_pairs(CpuBackend& cpu, const LinearArgs& op);

}  // namespace tessera::cpu
