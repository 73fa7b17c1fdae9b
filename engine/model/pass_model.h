// What a pass over rows needs of a model, whatever its body is: rows out of token ids, hidden rows
// out of rows and a cache, logits out of hidden rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/core/tensor.h"
#include "engine/model/forward_batch.h"
#include "engine/model/model_config.h"

namespace tessera {

class Transformer;

// How a model reads a stream by blocks. Rows of a line that is fed at once see one another; the
// logits of a token's row are those of the token at its place in the next block.
struct BlockReading {
  std::int64_t block = 0;  // tokens; 0 = token by token
  // A stream that nothing is given of begins with a begin token, then comes the first block token
  // by token; after its last token stand fillers, which make it the block that the second one is
  // predicted from. False: at least one block is given.
  bool begins = false;
  std::int32_t begin_id = 0;  // ids of embed_tokens(); fillers are those that follow

  // Rows that are fed for the first `tokens` tokens of a stream.
  std::int64_t rows_of(std::int64_t tokens) const {
    if (!begins) return tokens;
    return 1 + tokens + (tokens >= block ? block - 1 : 0);
  }
  // Tokens that are fed at once when `fed` of them are.
  std::int64_t step(std::int64_t fed) const { return begins && fed < block ? 1 : block; }
  // Fillers after a line that ends when `fed` tokens are.
  std::int64_t fillers(std::int64_t fed) const { return begins && fed == block ? block - 1 : 0; }
};

class PassModel {
 public:
  virtual ~PassModel() = default;

  virtual Backend& backend() const = 0;
  // The sizes of its layers and cache.
  virtual const ModelConfig& sizes() const = 0;
  virtual BlockReading reading() const { return {}; }
  // Ids 0 ... logit_ids() - 1 have logits.
  virtual std::int64_t logit_ids() const = 0;
  // Ids of a prompt. out [T, D].
  virtual void embed_prompt(std::span<const std::int32_t> ids, TensorView out) const = 0;
  // Ids of the stream that is decoded. out [M, D].
  virtual void embed_tokens(std::span<const std::int32_t> ids, Arena& arena,
                            TensorView out) const = 0;
  // As Transformer::forward().
  virtual void forward(const ForwardBatch& batch, KvCache& cache, Arena& arena, TensorView hidden,
                       const Taps& taps) const = 0;
  // hidden [M, D] after the final norm, out [M, logit_ids()] f32.
  virtual void logits(ConstTensorView hidden, Arena& arena, TensorView out) const = 0;
  // Arena bytes for any one of the calls above with this many rows.
  virtual std::size_t scratch_bytes(std::int64_t rows) const = 0;
  // The body, for work on layers and cached rows that only a transformer allows; else null.
  virtual const Transformer* transformer_body() const { return nullptr; }

  std::int64_t width() const { return sizes().width; }
};

}  // namespace tessera
