// Vector quantisation.
#pragma once

#include <cstdint>
#include <span>

#include "engine/ops/checks.h"

namespace tessera {

// argmin over the codebook of |z|^2 + |e|^2 - 2 z.e, lowest index on a tie.
struct NearestCodeArgs {
  static constexpr const char* kName = "nearest_code";
  ConstTensorView z;            // [N, D] f32
  ConstTensorView codebook;     // [V, D] f32
  std::span<std::int32_t> ids;  // [N], of the host: there after synchronize()

  void check(const Backend& backend) const {
    expects_f32(backend, z, "nearest_code: z is f32 on the device");
    expects_f32(backend, codebook, "nearest_code: codebook is f32 on the device");
    expects_rank(z, 2, "nearest_code: z is [N, D]");
    expects_rank(codebook, 2, "nearest_code: codebook is [V, D]");
    expects(codebook.shape[0] > 0 && codebook.shape[1] == z.shape[1],
            "nearest_code: codebook has the width of z");
    expects(std::ssize(ids) == z.shape[0], "nearest_code: one id a row");
  }
  void visit(OpVisitor& visitor) { visitor(z, codebook, ids); }
};

namespace ops {

inline void nearest_code(Backend& backend, ConstTensorView z, ConstTensorView codebook,
                         std::span<std::int32_t> ids) {
  run(backend, NearestCodeArgs{z, codebook, ids});
}

}  // namespace ops
}  // namespace tessera
