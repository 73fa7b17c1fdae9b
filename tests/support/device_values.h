// Numbers on their way to a device and back, for tests that run on any.
#pragma once

#include <vector>

#include "engine/backend/backend.h"
#include "engine/core/tensor.h"

namespace tessera {

inline Tensor on_device(Backend& backend, const std::vector<float>& values, Shape shape) {
  Tensor out = backend.allocate(DType::kF32, shape);
  backend.upload({DType::kF32, shape, values.data(), Device{}}, out.view());
  return out;
}

// Waits.
inline std::vector<float> from_device(Backend& backend, ConstTensorView view) {
  std::vector<float> out(static_cast<std::size_t>(view.shape.elements()));
  backend.download(view, {DType::kF32, view.shape, out.data(), Device{}});
  backend.synchronize();
  return out;
}

}  // namespace tessera
