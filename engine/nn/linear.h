// A matrix with an optional bias, packed for one backend.
#pragma once

#include "engine/backend/backend.h"
#include "engine/ops/ops.h"

namespace tessera {

struct Linear {
  LinearWeight weight;  // [n, k]
  Tensor bias;          // [n] f32, or empty

  std::size_t bytes() const { return weight.packed.bytes() + bias.bytes(); }
};

// out [M, n] = w x + bias, x [M, k].
inline void apply(Backend& backend, const Linear& linear, ConstTensorView x, TensorView out) {
  ops::linear(backend, x, linear.weight,
              linear.bias.empty() ? ConstTensorView{} : linear.bias.view(), out);
}

// sum [M, n] += w x + bias; scratch [M, n].
inline void apply_add(Backend& backend, const Linear& linear, ConstTensorView x, TensorView sum,
                      TensorView scratch) {
  ops::linear_add(backend, x, linear.weight,
                  linear.bias.empty() ? ConstTensorView{} : linear.bias.view(), sum, scratch);
}

}  // namespace tessera
