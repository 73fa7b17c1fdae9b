// Weights out of a checkpoint for a convolution stack, and images on their way to the device and
// back. Internal to tokenizers/visual.
#pragma once

#include <string>

#include "engine/backend/backend.h"
#include "engine/checkpoint/checked_weight.h"
#include "engine/nn/conv_blocks.h"

namespace tessera {

// Hands out checked tensors of a checkpoint.
class CheckedSource final : public WeightSource {
 public:
  explicit CheckedSource(const Checkpoint& checkpoint) : checkpoint_(checkpoint) {}
  ConstTensorView get(const std::string& name, const Shape& shape) override {
    return checked_weight(checkpoint_, name, shape);
  }
  void done(const std::string& name) override { checkpoint_.release(name); }

 private:
  const Checkpoint& checkpoint_;
};

// The device's copy of a host image; on the CPU the image itself.
struct DeviceImage {
  Tensor owned;
  ConstTensorView view;
};
inline DeviceImage to_device(Backend& backend, ConstTensorView host) {
  if (backend.device().kind == DeviceKind::kCpu) return {Tensor(), host};
  Tensor copy = backend.allocate(DType::kF32, host.shape);
  backend.upload(host, copy.view());
  const ConstTensorView view = copy.view();
  return {std::move(copy), view};
}

inline Tensor to_host(Backend& backend, ConstTensorView device) {
  Tensor host = backend.allocate_host(DType::kF32, device.shape);
  backend.download(device, host.view());
  backend.synchronize();
  return host;
}

}  // namespace tessera
