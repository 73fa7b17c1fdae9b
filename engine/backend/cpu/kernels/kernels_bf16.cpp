// Compiled for the AVX-512 of kernels_avx512.cpp and BF16; called only where the processor has
// them.
#include "engine/backend/cpu/kernels/pair_tile.h"

namespace tessera::cpu {

const PairKernels& bf16_pair_kernels() {
  static constexpr PairKernels kTable = make_pair_table();
  return kTable;
}

}  // namespace tessera::cpu
