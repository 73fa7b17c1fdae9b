// A language model that writes text: one table of token embeddings for what it reads and what it
// wrote, the transformer, a head over the whole vocabulary. Rows of pictures come from elsewhere
// and enter beside embedded ids.
#pragma once

#include "engine/model/token_model.h"
#include "engine/nn/linear.h"

namespace tessera {

struct TextModelConfig {
  ModelConfig transformer;
  std::int64_t vocab = 0;
  std::int64_t max_positions = 0;  // of the rotary table
  bool tied_head = false;          // the head is the table
};

struct TextModelWeights {
  TransformerWeights transformer;
  Tensor table;  // [V, D] f32 or bf16
  Linear head;   // [V, D], packed from the table where the two are tied
};

class TextModel final : public TokenModel {
 public:
  TextModel(Backend& backend, const TextModelConfig& config, TextModelWeights weights);

  const TextModelConfig& config() const { return config_; }
  const Transformer& transformer() const override { return transformer_; }
  std::int64_t logit_ids() const override { return config_.vocab; }
  void embed_prompt(std::span<const std::int32_t> ids, TensorView out) const override;
  void embed_tokens(std::span<const std::int32_t> ids, Arena& arena, TensorView out) const override;
  void logits(ConstTensorView hidden, Arena& arena, TensorView out) const override;
  std::size_t scratch_bytes(std::int64_t rows) const override {
    return Transformer::scratch_bytes(config_.transformer, rows, backend());
  }
  std::size_t weight_bytes() const;

 private:
  TextModelConfig config_;
  Transformer transformer_;
  Tensor table_;
  Linear head_;
};

}  // namespace tessera
