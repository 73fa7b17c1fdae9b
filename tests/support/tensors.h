// Small helpers over tensors for tests.
#pragma once

#include <cstring>
#include <map>
#include <string>

#include "engine/checkpoint/checkpoint.h"
#include "engine/core/tensor.h"

namespace tessera {

// Host tensor with these bytes repeated: byte i is (seed + 31 i) mod 251.
inline Tensor patterned(DType dtype, const Shape& shape, unsigned seed = 1) {
  Tensor out = Tensor::host(dtype, shape);
  auto* bytes = static_cast<unsigned char*>(out.view().data);
  for (std::size_t i = 0; i < out.bytes(); ++i) {
    bytes[i] = static_cast<unsigned char>((seed + 31 * i) % 251);
  }
  return out;
}

inline bool same_tensor(const ConstTensorView& a, const ConstTensorView& b) {
  return a.dtype == b.dtype && a.shape == b.shape &&
         (a.bytes() == 0 || std::memcmp(a.data, b.data, a.bytes()) == 0);
}

// The views of a checkpoint as write_safetensors wants them.
inline std::map<std::string, ConstTensorView> views_of(const Checkpoint& checkpoint) {
  return {checkpoint.tensors().begin(), checkpoint.tensors().end()};
}

}  // namespace tessera
