// Joins prompt table, picture-code embedding, transformer and picture head.
#include "engine/model/image_model.h"

#include <algorithm>

namespace tessera {

namespace {

std::size_t padded(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

std::size_t matrix_bytes(std::int64_t rows, std::int64_t cols) {
  return padded(static_cast<std::size_t>(rows * cols) * sizeof(float));
}

}  // namespace

ImageModel::ImageModel(Backend& backend, const ImageModelConfig& config, ImageModelWeights weights)
    : config_(config),
      transformer_(backend, config.transformer, std::move(weights.transformer)),
      prompt_table_(std::move(weights.prompt_table)),
      code_table_(std::move(weights.code_table)),
      align_in_(std::move(weights.align_in)),
      align_out_(std::move(weights.align_out)),
      head_in_(std::move(weights.head_in)),
      head_out_(std::move(weights.head_out)) {
  expects((config.code_width > 0) == (align_in_.weight.n > 0),
          "a narrow code table has an aligner");
  expects(head_out_.weight.n == config.codes, "the head has one row a code");
  expects(code_table_.shape()[0] == config.image_vocabulary(), "the code table has all ids");
}

void ImageModel::embed_prompt(std::span<const std::int32_t> tokens, TensorView out) const {
  expects(static_cast<std::int64_t>(tokens.size()) <= config_.max_prompt, "the prompt fits");
  ops::embedding(backend(), prompt_table_.view(), tokens, out);
}

void ImageModel::embed_tokens(std::span<const std::int32_t> ids, Arena& arena,
                              TensorView out) const {
  if (config_.code_width == 0) {
    ops::embedding(backend(), code_table_.view(), ids, out);
    return;
  }
  const std::size_t mark = arena.used();
  const auto rows = static_cast<std::int64_t>(ids.size());
  const TensorView codes = arena.take(DType::kF32, Shape{rows, config_.code_width});
  const TensorView inner = arena.take(DType::kF32, Shape{rows, width()});
  ops::embedding(backend(), code_table_.view(), ids, codes);
  apply(backend(), align_in_, codes, inner);
  ops::gelu(backend(), inner, inner);
  apply(backend(), align_out_, inner, out);
  arena.rewind(mark);
}

void ImageModel::logits(ConstTensorView hidden, Arena& arena, TensorView out) const {
  if (head_in_.weight.n == 0) {
    apply(backend(), head_out_, hidden, out);
    return;
  }
  const std::size_t mark = arena.used();
  const TensorView inner = arena.take(DType::kF32, Shape{hidden.shape[0], head_in_.weight.n});
  apply(backend(), head_in_, hidden, inner);
  ops::gelu(backend(), inner, inner);
  apply(backend(), head_out_, inner, out);
  arena.rewind(mark);
}

std::vector<std::int32_t> unconditional_prompt(const ImageModelConfig& config,
                                               std::span<const std::int32_t> prompt,
                                               std::int32_t pad_token) {
  if (config.unconditional == UnconditionalRule::kNullClass) return {config.null_class};
  expects(config.unconditional == UnconditionalRule::kPadBetweenEnds,
          "the other branch is made of the prompt");
  std::vector<std::int32_t> out(prompt.begin(), prompt.end());
  for (std::size_t i = 1; i + 1 < out.size(); ++i) out[i] = pad_token;
  return out;
}

std::vector<std::int32_t> ImageModel::unconditional_prompt(std::span<const std::int32_t> prompt,
                                                           std::int32_t pad_token) const {
  return tessera::unconditional_prompt(config_, prompt, pad_token);
}

std::size_t ImageModel::scratch_bytes(const ImageModelConfig& config, std::int64_t rows,
                                      const Backend& backend) {
  const std::size_t embed =
      config.code_width == 0
          ? 0
          : matrix_bytes(rows, config.code_width) + matrix_bytes(rows, config.transformer.width);
  const std::size_t head = matrix_bytes(rows, config.transformer.width);
  return std::max({embed, head, Transformer::scratch_bytes(config.transformer, rows, backend)});
}

std::size_t ImageModel::weight_bytes() const {
  return transformer_.weight_bytes() + prompt_table_.bytes() + code_table_.bytes() +
         align_in_.bytes() + align_out_.bytes() + head_in_.bytes() + head_out_.bytes();
}

std::size_t ImageModel::step_weight_bytes() const {
  const std::size_t rope =
      static_cast<std::size_t>(config_.transformer.rope.rows() * config_.transformer.head_dim) *
      sizeof(float);
  return transformer_.weight_bytes() - rope + align_in_.bytes() + align_out_.bytes() +
         head_in_.bytes() + head_out_.bytes();
}

}  // namespace tessera
