// Joins tables, aligner, transformer and heads.
#include "engine/model/stream_model.h"

#include <algorithm>

#include "engine/core/index.h"
#include "engine/nn/pass_views.h"

namespace tessera {

namespace {

std::size_t held(const Tensor& tensor) { return tensor.empty() ? 0 : tensor.bytes(); }

std::size_t head_bytes(const SpaceWeights& space) {
  std::size_t sum = 0;
  for (const Linear* layer : {&space.align_in, &space.align_out, &space.head_in, &space.head_out}) {
    sum += held(layer->weight.packed) + held(layer->bias);
  }
  return sum;
}

// One space of a model: all it refers to is the model's.
class Space final : public TokenModel {
 public:
  Space(TokenSpace kind, const StreamModelConfig& config, const Transformer& transformer,
        const SpaceWeights& weights, const SpaceWeights& text)
      : kind_(kind),
        config_(config),
        transformer_(transformer),
        weights_(weights),
        text_(text) {}

  const SpaceWeights& weights() const { return weights_; }
  const Transformer& transformer() const override { return transformer_; }
  std::int64_t logit_ids() const override { return weights_.head_out.weight.n; }

  void embed_prompt(std::span<const std::int32_t> ids, TensorView out) const override {
    expects(kind_ == TokenSpace::kText || std::ssize(ids) <= config_.max_prompt, "the prompt fits");
    look_up(text_, ids, out);
  }

  void embed_tokens(std::span<const std::int32_t> ids, Arena& arena,
                    TensorView out) const override {
    if (weights_.align_in.weight.n == 0) {
      look_up(weights_, ids, out);
      return;
    }
    const std::size_t mark = arena.used();
    const auto rows = std::ssize(ids);
    const TensorView narrow = arena.take(DType::kF32, Shape{rows, weights_.table.shape()[1]});
    const TensorView inner = arena.take(DType::kF32, Shape{rows, width()});
    ops::embedding(backend(), weights_.table.view(), ids, narrow);
    apply(backend(), weights_.align_in, narrow, inner);
    ops::gelu(backend(), inner, inner);
    apply(backend(), weights_.align_out, inner, out);
    arena.rewind(mark);
  }

  void logits(ConstTensorView hidden, Arena& arena, TensorView out) const override {
    if (weights_.head_in.weight.n == 0) {
      apply(backend(), weights_.head_out, hidden, out);
      return;
    }
    const std::size_t mark = arena.used();
    const TensorView inner =
        arena.take(DType::kF32, Shape{hidden.shape[0], weights_.head_in.weight.n});
    apply(backend(), weights_.head_in, hidden, inner);
    ops::gelu(backend(), inner, inner);
    apply(backend(), weights_.head_out, inner, out);
    arena.rewind(mark);
  }

  std::size_t scratch_bytes(std::int64_t rows) const override {
    return kind_ == TokenSpace::kText
               ? Transformer::scratch_bytes(config_.transformer, rows, backend())
               : StreamModel::scratch_bytes(config_, rows, backend());
  }

 private:
  void look_up(const SpaceWeights& space, std::span<const std::int32_t> ids, TensorView out) const {
    ops::embedding(backend(), space.table.view(), ids, out);
    if (space.row_scale.empty()) return;
    ops::affine_channels(backend(), out, space.row_scale.view(), space.row_shift.view(), out);
  }

  TokenSpace kind_;
  const StreamModelConfig& config_;
  const Transformer& transformer_;
  const SpaceWeights& weights_;
  const SpaceWeights& text_;
};

}  // namespace

struct StreamModel::State {
  State(Backend& backend, const StreamModelConfig& model_config, StreamModelWeights weights)
      : config(model_config),
        transformer(backend, model_config.transformer, std::move(weights.transformer)),
        text_weights(std::move(weights.text)),
        image_weights(std::move(weights.image)),
        text(TokenSpace::kText, config, transformer, text_weights, text_weights),
        image(TokenSpace::kImage, config, transformer, image_weights, text_weights) {}

  StreamModelConfig config;
  Transformer transformer;
  SpaceWeights text_weights, image_weights;
  Space text, image;
};

StreamModel::StreamModel(Backend& backend, const StreamModelConfig& config,
                         StreamModelWeights weights)
    : state_(std::make_unique<State>(backend, config, std::move(weights))) {
  const SpaceWeights &text = state_->text_weights, &image = state_->image_weights;
  const bool images = writes(TokenSpace::kImage), texts = writes(TokenSpace::kText);
  expects(images || texts, "a model writes something");
  if (images) {
    expects((config.code_width > 0) == (image.align_in.weight.n > 0),
            "a narrow code table has an aligner");
    expects(image.head_out.weight.n == config.codes, "the head has one row a code");
    expects(image.table.shape()[0] == config.image_vocabulary(), "the code table has all ids");
  }
  if (texts) {
    expects(text.table.shape() == Shape({config.vocab, config.transformer.width}),
            "the table has a row a token");
    expects(text.head_out.weight.n == config.vocab, "the head has a row a token");
  }
}

StreamModel::StreamModel(StreamModel&&) noexcept = default;
StreamModel& StreamModel::operator=(StreamModel&&) noexcept = default;
StreamModel::~StreamModel() = default;

const StreamModelConfig& StreamModel::config() const { return state_->config; }
const Transformer& StreamModel::transformer() const { return state_->transformer; }

bool StreamModel::writes(TokenSpace space) const {
  const Space& own = space == TokenSpace::kText ? state_->text : state_->image;
  return own.logit_ids() > 0;
}

const TokenModel& StreamModel::space(TokenSpace space) const {
  expects(writes(space), "the model writes tokens of this space");
  return space == TokenSpace::kText ? state_->text : state_->image;
}

const TokenModel& StreamModel::own() const {
  return writes(TokenSpace::kImage) ? state_->image : state_->text;
}

std::int64_t StreamModel::logit_ids() const { return own().logit_ids(); }
void StreamModel::embed_prompt(std::span<const std::int32_t> ids, TensorView out) const {
  own().embed_prompt(ids, out);
}
void StreamModel::embed_tokens(std::span<const std::int32_t> ids, Arena& arena,
                               TensorView out) const {
  own().embed_tokens(ids, arena, out);
}
void StreamModel::logits(ConstTensorView hidden, Arena& arena, TensorView out) const {
  own().logits(hidden, arena, out);
}
std::size_t StreamModel::scratch_bytes(std::int64_t rows) const {
  return own().scratch_bytes(rows);
}

std::vector<std::int32_t> unconditional_prompt(const StreamModelConfig& config,
                                               std::span<const std::int32_t> prompt,
                                               std::int32_t pad_token) {
  if (config.unconditional == UnconditionalRule::kNullClass) return {config.null_class};
  std::vector<std::int32_t> out(prompt.begin(), prompt.end());
  if (config.unconditional == UnconditionalRule::kEnds) {
    expects(std::ssize(prompt) >= config.kept_first + config.kept_last, "a prompt has its ends");
    out.erase(out.begin() + config.kept_first, out.end() - config.kept_last);
    return out;
  }
  expects(config.unconditional == UnconditionalRule::kPadBetweenEnds,
          "the other branch is made of the prompt");
  for (std::size_t i = 1; i + 1 < out.size(); ++i) out[i] = pad_token;
  return out;
}

std::vector<std::int32_t> StreamModel::unconditional_prompt(std::span<const std::int32_t> prompt,
                                                            std::int32_t pad_token) const {
  return tessera::unconditional_prompt(config(), prompt, pad_token);
}

std::size_t StreamModel::scratch_bytes(const StreamModelConfig& config, std::int64_t rows,
                                       const Backend& backend) {
  const std::size_t own = Transformer::scratch_bytes(config.transformer, rows, backend);
  if (config.codes == 0) return own;
  const std::size_t embed =
      config.code_width == 0
          ? 0
          : matrix_bytes(rows, config.code_width) + matrix_bytes(rows, config.transformer.width);
  return std::max({embed, matrix_bytes(rows, config.transformer.width), own});
}

std::size_t StreamModel::weight_bytes() const {
  const SpaceWeights &text = state_->text_weights, &image = state_->image_weights;
  return transformer().weight_bytes() + held(text.table) + head_bytes(text) + held(image.table) +
         head_bytes(image);
}

std::size_t StreamModel::step_weight_bytes() const {
  const ModelConfig& sizes = config().transformer;
  const std::size_t rope = to_size(sizes.rope_numbers()) * sizeof(float);
  const Space& own = writes(TokenSpace::kImage) ? state_->image : state_->text;
  return transformer().weight_bytes() - rope + head_bytes(own.weights());
}

}  // namespace tessera
