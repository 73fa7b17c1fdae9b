// Where the host itself has to read or write what lies on a device. On the CPU both are the
// tensor's own memory; elsewhere a copy that goes through the device's queue.
#pragma once

#include "engine/backend/backend.h"
#include "engine/core/tensor.h"

namespace tessera {

// A device tensor as the host reads it. Waits for the device.
class HostView {
 public:
  HostView(Backend& backend, ConstTensorView of) : view_(of) {
    if (of.device.kind != DeviceKind::kCpu) {
      copy_ = Tensor::host(of.dtype, of.shape);
      backend.download(of, copy_.view());
      view_ = copy_.view();
    }
    backend.synchronize();
  }
  HostView(const HostView&) = delete;
  HostView& operator=(const HostView&) = delete;

  const ConstTensorView& view() const { return view_; }
  const float* f32() const { return view_.f32(); }

 private:
  Tensor copy_;  // empty on the CPU
  ConstTensorView view_;
};

// What the host writes in place of a device tensor's contents, all of it; there after send().
class HostDraft {
 public:
  HostDraft(Backend& backend, TensorView of) : backend_(backend), of_(of), view_(of) {
    if (of.device.kind == DeviceKind::kCpu) return;
    copy_ = Tensor::host(of.dtype, of.shape);
    view_ = copy_.view();
  }
  HostDraft(const HostDraft&) = delete;
  HostDraft& operator=(const HostDraft&) = delete;

  float* f32() { return view_.f32(); }
  void send() {
    if (!copy_.empty()) backend_.upload(copy_.view(), of_);
  }

 private:
  Backend& backend_;
  Tensor copy_;  // empty on the CPU
  TensorView of_, view_;
};

}  // namespace tessera
