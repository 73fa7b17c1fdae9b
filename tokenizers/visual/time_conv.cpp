#include "tokenizers/visual/time_conv.h"

#include "engine/checkpoint/checked_weight.h"
#include "engine/ops/ops.h"

namespace tessera {

void remember(Past& past, Map map) {
  past.push_back(std::move(map));
  if (past.size() > kPastMaps) past.pop_front();
}

Tensor uploaded(Backend& backend, const Tensor& host) {
  Tensor device = backend.allocate(DType::kF32, host.shape());
  backend.upload(host.view(), device.view());
  return device;
}

Tensor filled(Backend& backend, std::int64_t count, float value) {
  Tensor host = Tensor::host(DType::kF32, {count});
  for (std::int64_t i = 0; i < count; ++i) host.f32()[i] = value;
  return uploaded(backend, host);
}

TimeConv::TimeConv(Backend& backend, const Checkpoint& checkpoint, const std::string& name,
                   const Size& size, DType storage)
    : size_(size) {
  const auto [out, in, kt, k] = size;
  const Tensor weight = widened(checked_weight(checkpoint, name + ".weight", {out, in, kt, k, k}));
  checkpoint.release(name + ".weight");
  const std::int64_t area = std::int64_t{k} * k;
  for (int t = 0; t < kt; ++t) {
    Tensor slice = Tensor::host(DType::kF32, {out, in, k, k});
    for (std::int64_t pair = 0; pair < out * in; ++pair) {
      for (std::int64_t i = 0; i < area; ++i) {
        slice.f32()[pair * area + i] = weight.view().f32()[(pair * kt + t) * area + i];
      }
    }
    slices_.push_back(backend.pack_conv(slice.view(), storage));
  }
  bias_ = uploaded(backend, widened(checked_weight(checkpoint, name + ".bias", {out})));
}

void TimeConv::apply(Backend& backend, std::span<const Map> inputs, Conv2dArgs form) const {
  expects(inputs.size() == slices_.size() && inputs.back() != nullptr, "a map for each slice");
  const bool padded = form.pad_top + form.pad_left + form.pad_bottom + form.pad_right > 0;
  if (!padded) {
    form.pad_top = form.pad_left = form.pad_bottom = form.pad_right = size_.k / 2;
  }
  for (std::size_t i = slices_.size(); i-- > 0;) {
    if (inputs[i] == nullptr) continue;
    const bool last = i + 1 == slices_.size();
    Conv2dArgs args = form;
    args.in = inputs[i]->view();
    args.weight = &slices_[i];
    args.accumulate = form.accumulate || !last;
    if (last) args.bias = bias_.view();
    ops::conv2d(backend, args);
  }
}

}  // namespace tessera
