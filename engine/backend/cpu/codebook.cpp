// Vector quantisation: the nearest code by squared distance (van den Oord et al. 2017). Sums are in
// double, so that rounding decides no tie that the numbers do not hold.
#include <algorithm>
#include <limits>

#include "engine/backend/cpu/cpu_backend.h"
#include "engine/core/index.h"
#include "engine/ops/codebook.h"

namespace tessera::cpu {

namespace {

void nearest_code(CpuBackend& cpu, const NearestCodeArgs& op) {
  const std::int64_t codes = op.codebook.shape[0];
  const std::int64_t width = op.codebook.shape[1];
  cpu.threads().parallel_for(op.z.shape[0], 4, [&](std::int64_t row, std::int64_t end, int) {
    for (; row < end; ++row) {
      const float* x = op.z.f32() + row * width;
      double best = std::numeric_limits<double>::infinity();
      std::int64_t index = 0;
      for (std::int64_t code = 0; code < codes; ++code) {
        const float* e = op.codebook.f32() + code * width;
        double distance = 0.0;  // |x - e|^2 = |x|^2 + |e|^2 - 2 x.e, exact to the last bits
        for (std::int64_t i = 0; i < width; ++i) {
          const double gap = double{x[i]} - double{e[i]};
          distance += gap * gap;
        }
        if (distance < best) {
          best = distance;
          index = code;
        }
      }
      nth(op.ids, row) = static_cast<std::int32_t>(index);
    }
  });
}

}  // namespace

void add_codebook_ops(OpTable& table) { table.add<nearest_code>(); }

}  // namespace tessera::cpu
