// Compiled for AVX-512 F, BW, DQ and VL; called only where the processor has them.
#include "engine/backend/cpu/kernels/pair_tile.h"
#include "engine/backend/cpu/kernels/table.h"

namespace tessera::cpu {

const Kernels& avx512_kernels() {
  static constexpr Kernels kTable = make_table("avx512");
  return kTable;
}

const PairKernels& avx512_pair_kernels() {
  static constexpr PairKernels kTable = make_pair_table();
  return kTable;
}

}  // namespace tessera::cpu
