// What a decoding pass needs of a model, whatever its tokens stand for: rows out of token ids, and
// logits out of hidden rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/core/tensor.h"
#include "engine/model/transformer.h"

namespace tessera {

class TokenModel {
 public:
  virtual ~TokenModel() = default;

  virtual const Transformer& transformer() const = 0;
  // Ids 0 ... logit_ids() - 1 have logits.
  virtual std::int64_t logit_ids() const = 0;
  // Ids of a prompt. out [T, D].
  virtual void embed_prompt(std::span<const std::int32_t> ids, TensorView out) const = 0;
  // Ids of the stream that is decoded. out [M, D].
  virtual void embed_tokens(std::span<const std::int32_t> ids, Arena& arena,
                            TensorView out) const = 0;
  // hidden [M, D] after the final norm, out [M, logit_ids()] f32.
  virtual void logits(ConstTensorView hidden, Arena& arena, TensorView out) const = 0;
  // Arena bytes for any one of the calls above or Transformer::forward with this many rows.
  virtual std::size_t scratch_bytes(std::int64_t rows) const = 0;

  Backend& backend() const { return transformer().backend(); }
  std::int64_t width() const { return transformer().config().width; }
};

}  // namespace tessera
