// Joins token table, transformer and text head.
#include "engine/model/text_model.h"

namespace tessera {

TextModel::TextModel(Backend& backend, const TextModelConfig& config, TextModelWeights weights)
    : config_(config),
      transformer_(backend, config.transformer, std::move(weights.transformer)),
      table_(std::move(weights.table)),
      head_(std::move(weights.head)) {
  expects(table_.shape() == Shape({config.vocab, config.transformer.width}),
          "the table has a row a token");
  expects(head_.weight.n == config.vocab, "the head has a row a token");
}

void TextModel::embed_prompt(std::span<const std::int32_t> ids, TensorView out) const {
  ops::embedding(backend(), table_.view(), ids, out);
}

void TextModel::embed_tokens(std::span<const std::int32_t> ids, Arena&, TensorView out) const {
  ops::embedding(backend(), table_.view(), ids, out);
}

void TextModel::logits(ConstTensorView hidden, Arena&, TensorView out) const {
  apply(backend(), head_, hidden, out);
}

std::size_t TextModel::weight_bytes() const {
  return transformer_.weight_bytes() + table_.bytes() + head_.bytes();
}

}  // namespace tessera
