// Compiled for the AVX-512 of kernels_avx512.cpp and VNNI; called only where the processor has them.
#include "engine/backend/cpu/kernels/affine_tile.h"

namespace tessera::cpu {

const IntegerKernels& vnni_integer_kernels() {
  static constexpr IntegerKernels kTable = with_affine(make_integer_table());
  return kTable;
}

}  // namespace tessera::cpu
