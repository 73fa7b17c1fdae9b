// Rotary position embedding (Su et al. 2021) from tables of cosines and sines per row. A row of
// zeros in both tables turns the head into zeros, as LlamaGen's condition rows do.
#include <algorithm>

#include "engine/backend/cpu/cpu_backend.h"
#include "engine/ops/rope.h"

namespace tessera::cpu {

namespace {

void rope(CpuBackend& cpu, const RopeArgs& op) {
  const std::int64_t heads = op.x.shape[1];
  const std::int64_t dim = op.x.shape[2];
  const std::int64_t half = dim / 2;
  const bool split = op.pairing == RopePairing::kHalfSplit;
  const std::int64_t step = split ? 1 : 2;
  const std::int64_t partner = split ? half : 1;
  const std::int64_t grain =
      std::max<std::int64_t>(1, 16384 / std::max<std::int64_t>(heads * dim, 1));
  cpu.threads().parallel_for(op.x.shape[0], grain, [&](std::int64_t row, std::int64_t end, int) {
    for (; row < end; ++row) {
      const float* c = op.cos.f32() + row * half;
      const float* s = op.sin.f32() + row * half;
      for (std::int64_t head = 0; head < heads; ++head) {
        float* first = op.x.f32() + (row * heads + head) * dim;
        float* second = first + partner;
        for (std::int64_t i = 0; i < half; ++i) {
          const float a = first[i * step];
          const float b = second[i * step];
          first[i * step] = a * c[i] - b * s[i];
          second[i * step] = b * c[i] + a * s[i];
        }
      }
    }
  });
}

}  // namespace

void add_rope_ops(OpTable& table) { table.add<rope>(); }

}  // namespace tessera::cpu
