// A pass model whose body is the transformer: the tokens of one space over it.
#pragma once

#include "engine/model/pass_model.h"
#include "engine/model/transformer.h"

namespace tessera {

class TokenModel : public PassModel {
 public:
  virtual const Transformer& transformer() const = 0;

  Backend& backend() const final { return transformer().backend(); }
  const ModelConfig& sizes() const final { return transformer().config(); }
  void forward(const ForwardBatch& batch, KvCache& cache, Arena& arena, TensorView hidden,
               const Taps& taps) const final {
    transformer().forward(batch, cache, arena, hidden, taps);
  }
  const Transformer* transformer_body() const final { return &transformer(); }
};

}  // namespace tessera
