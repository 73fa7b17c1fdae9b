// The joined generation model a pipeline needs, whatever the family: how a prompt becomes rows, how
// picture tokens become rows, how hidden rows become logits over picture codes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/core/tensor.h"
#include "engine/model/model_config.h"
#include "engine/model/token_model.h"
#include "engine/nn/linear.h"
#include "engine/sampling/grammar.h"

namespace tessera {

enum class PromptKind : std::uint8_t {
  kText,   // token ids of a text tokenizer
  kClass,  // one class id
  // No prompt: first frames, if there are any, begin the stream; at most one fixed token before it.
  kFrames,
};

// What the branch without the prompt sees under classifier-free guidance.
enum class UnconditionalRule : std::uint8_t {
  kPadBetweenEnds,  // same length; every token but the first and the last becomes the pad token
  kNullClass,       // the extra class
  kOtherText,       // the template around another text, the family's own if none is given
  kNone,            // there is no such branch
};

struct ImageModelConfig {
  ModelConfig transformer;
  PromptKind prompt = PromptKind::kText;
  UnconditionalRule unconditional = UnconditionalRule::kPadBetweenEnds;
  std::int64_t prompt_vocab = 0;  // ids that embed_prompt accepts, the null class included
  std::int64_t max_prompt = 0;    // tokens; 1 for a class
  std::int32_t null_class = -1;   // kNullClass
  std::int64_t codes = 0;         // picture codes
  std::int64_t code_width = 0;    // width of the code table when an aligner follows it, else 0
  std::int64_t grid_rows = 0;
  std::int64_t grid_cols = 0;
  bool row_end = false;    // a token behind each row of codes
  bool image_end = false;  // a token behind the last one
  std::int64_t grids = 1;  // grids of codes in a clip's stream; a picture is one
  bool grid_end = false;   // a token behind each grid
  bool stream_end = false;  // a token behind everything

  VocabularyGrammar grammar() const {
    return {.codes = static_cast<std::size_t>(codes),
            .rows = static_cast<std::size_t>(grid_rows),
            .columns = static_cast<std::size_t>(grid_cols),
            .row_end = row_end,
            .image_end = image_end,
            .grids = static_cast<std::size_t>(grids),
            .grid_end = grid_end,
            .stream_end = stream_end};
  }
  // Picture codes and control ids, which the code table has rows for.
  std::int64_t image_vocabulary() const {
    return static_cast<std::int64_t>(grammar().vocabulary());
  }
  // Codes of a picture or clip, and tokens of its stream: the same but for control ids.
  std::int64_t image_codes() const { return grids * grid_rows * grid_cols; }
  std::int64_t image_tokens() const { return static_cast<std::int64_t>(grammar().length()); }
  // Rows one sequence needs in the cache: the prompt, and every token of the stream but the last.
  std::int64_t cache_rows(std::int64_t prompt_tokens) const {
    return prompt_tokens + image_tokens() - 1;
  }
};

// The prompt of the unconditional branch; pad_token is read under kPadBetweenEnds only.
std::vector<std::int32_t> unconditional_prompt(const ImageModelConfig& config,
                                               std::span<const std::int32_t> prompt,
                                               std::int32_t pad_token);

struct ImageModelWeights {
  TransformerWeights transformer;
  Tensor prompt_table;  // [prompt_vocab, D] f32 or bf16
  Tensor code_table;    // [codes and control ids, code_width or D] f32 or bf16
  Linear align_in;      // [D, code_width], empty without an aligner
  Linear align_out;     // [D, D], empty without an aligner
  Linear head_in;       // [D, D], gelu behind it; empty for a plain head
  Linear head_out;      // [codes, D]
};

class ImageModel final : public TokenModel {
 public:
  ImageModel(Backend& backend, const ImageModelConfig& config, ImageModelWeights weights);

  const ImageModelConfig& config() const { return config_; }
  const Transformer& transformer() const override { return transformer_; }
  // Picture codes: control ids need no logits.
  std::int64_t logit_ids() const override { return config_.codes; }
  std::int64_t image_token_count() const { return config_.image_tokens(); }

  // Ids in [0, prompt_vocab), at most max_prompt of them. out [T, D].
  void embed_prompt(std::span<const std::int32_t> tokens, TensorView out) const override;
  // Ids of picture codes or control ids. out [M, D].
  void embed_tokens(std::span<const std::int32_t> ids, Arena& arena, TensorView out) const override;
  // hidden [M, D] after the final norm, out [M, codes] f32.
  void logits(ConstTensorView hidden, Arena& arena, TensorView out) const override;
  // The prompt of the unconditional branch; pad_token is read under kPadBetweenEnds only.
  std::vector<std::int32_t> unconditional_prompt(std::span<const std::int32_t> prompt,
                                                 std::int32_t pad_token) const;

  // Arena bytes for any one of the calls above or Transformer::forward with this many rows.
  std::size_t scratch_bytes(std::int64_t rows) const override {
    return scratch_bytes(config_, rows, backend());
  }
  static std::size_t scratch_bytes(const ImageModelConfig& config, std::int64_t rows,
                                   const Backend& backend);
  std::size_t weight_bytes() const;
  // Bytes of weights that one decode step reads, the KV cache not counted.
  std::size_t step_weight_bytes() const;

 private:
  ImageModelConfig config_;
  Transformer transformer_;
  Tensor prompt_table_, code_table_;
  Linear align_in_, align_out_, head_in_, head_out_;
};

}  // namespace tessera
