// Compiled for AVX-512 F, BW, DQ and VL; called only where the processor has them.
#include "engine/backend/cpu/kernels/table.h"

namespace tessera::cpu {

const Kernels& avx512_kernels() {
  static constexpr Kernels kTable = make_table("avx512");
  return kTable;
}

}  // namespace tessera::cpu
