// Matrix products with weights of blocks (StorageType::integers).
#pragma once

#include "engine/backend/cpu/cpu_backend.h"
#include "engine/backend/cpu/panel_storage.h"
#include "engine/ops/linear.h"

namespace tessera::cpu {

// Inputs are rounded to 8 bits in blocks of 32, a row by itself: half a part in 127 of a block's
// largest one is lost at most. NaN or infinity in a block makes a row of NaN.
// Parts of the weight that are of other types are left out. Not of a precise backend.
void linear_integers(CpuBackend& cpu, const LinearArgs& op);

}  // namespace tessera::cpu
