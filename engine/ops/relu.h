// The rectifier.
#pragma once

#include "engine/ops/checks.h"

namespace tessera {

// max(x, 0) (Nair & Hinton 2010); NaN stays.
struct ReluArgs {
  static constexpr const char* kName = "relu";
  ConstTensorView x;  // f32
  TensorView out;     // f32, as x; may be x

  void check(const Backend& backend) const {
    expects_f32(backend, x, "relu: x is f32 on the device");
    expects_f32(backend, out, "relu: out is f32 on the device");
    expects(x.shape == out.shape, "relu: equal shapes");
  }
  void visit(OpVisitor& visitor) { visitor(x, out); }
};

namespace ops {

inline void relu(Backend& backend, ConstTensorView x, TensorView out) {
  run(backend, ReluArgs{x, out});
}

}  // namespace ops
}  // namespace tessera
