// Compiled with -mavx2 -mfma -mf16c; called only where the processor has all of them.
#include "engine/backend/cpu/kernels/affine_tile.h"
#include "engine/backend/cpu/kernels/table.h"

namespace tessera::cpu {

const Kernels& avx2_kernels() {
  static constexpr Kernels kTable = make_table("avx2");
  return kTable;
}

const IntegerKernels& avx2_integer_kernels() {
  static constexpr IntegerKernels kTable = with_affine(make_integer_table());
  return kTable;
}

}  // namespace tessera::cpu
