// What every machine can run, and what the others are held to, bit for bit.
#include "engine/backend/cpu/kernels/affine_tile.h"
#include "engine/backend/cpu/kernels/table.h"

namespace tessera::cpu {

const Kernels& portable_kernels() {
  static constexpr Kernels kTable = make_table("reference");
  return kTable;
}

const IntegerKernels& portable_integer_kernels() {
  static constexpr IntegerKernels kTable = with_affine(make_integer_table());
  return kTable;
}

}  // namespace tessera::cpu
