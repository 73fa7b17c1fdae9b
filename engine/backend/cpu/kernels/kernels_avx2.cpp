// Compiled with -mavx2 -mfma; called only where the processor has both.
#include "engine/backend/cpu/kernels/table.h"

namespace tessera::cpu {

const Kernels& avx2_kernels() {
  static constexpr Kernels kTable = make_table("avx2");
  return kTable;
}

}  // namespace tessera::cpu
