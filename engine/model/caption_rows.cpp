#include "engine/model/caption_rows.h"

#include "engine/core/index.h"
#include "engine/nn/pass_views.h"

namespace tessera {

CaptionRows::CaptionRows(Backend& backend, CaptionWeights weights)
    : backend_(&backend), weights_(std::move(weights)) {
  expects(weights_.unconditional.shape().rank() == 2 &&
              weights_.unconditional.shape()[1] == weights_.fc1.weight.k &&
              weights_.fc2.weight.k == weights_.fc1.weight.n,
          "learned rows go through both matrices");
}

Tensor CaptionRows::prompt(ConstTensorView features) const {
  const std::int64_t rows = features.shape[0], width = weights_.fc1.weight.n;
  Tensor inner = backend_->allocate(DType::kF32, {rows, width});
  Tensor out = backend_->allocate(DType::kF32, {rows, weights_.fc2.weight.n});
  apply(*backend_, weights_.fc1, features, inner.view());
  ops::gelu_tanh(*backend_, inner.view(), inner.view());
  apply(*backend_, weights_.fc2, inner.view(), out.view());
  backend_->synchronize();  // before the inner rows go
  return out;
}

Tensor CaptionRows::unconditional(std::int64_t rows) const {
  const ConstTensorView all = weights_.unconditional.view();
  expects(rows > 0 && rows <= all.shape[0], "as many rows as are learned");
  const std::int64_t width = all.shape[1];
  return prompt(
      {all.dtype, Shape{rows, width}, all.f32() + (all.shape[0] - rows) * width, all.device});
}

std::size_t CaptionRows::bytes(std::int64_t rows, std::int64_t width, std::int64_t model_width,
                               const Backend& backend, DType storage) {
  return backend.packed_linear_bytes(model_width, width, storage) +
         backend.packed_linear_bytes(model_width, model_width, storage) + matrix_bytes(rows, width);
}

}  // namespace tessera
