// One transformer and the token spaces it reads and writes: text, image codes, or both. A space is
// a table of rows by id, an aligner where the table is narrow, and a head where the model writes
// its ids. The spec of a family says which spaces there are (docs/decisions/0011).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/core/index.h"
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
  kEnds,            // the prompt's first and last tokens alone
  kNone,            // there is no such branch
};

struct StreamModelConfig {
  ModelConfig transformer;
  // Text, or classes.
  PromptKind prompt = PromptKind::kText;
  UnconditionalRule unconditional = UnconditionalRule::kPadBetweenEnds;
  std::int64_t prompt_vocab = 0;   // ids that an image's prompt may hold, the null class included
  std::int64_t max_prompt = 0;     // tokens of an image's prompt; 1 for a class
  std::int32_t null_class = -1;    // kNullClass
  // kEnds: how many tokens stay at the beginning and at the end.
  std::int64_t kept_first = 0, kept_last = 0;
  std::int64_t vocab = 0;          // text ids that the model writes; 0 = writes no text
  std::int64_t max_positions = 0;  // of a text with its prompt, as trained
  bool tied_head = false;          // the text head is the table
  // Image codes; 0 codes = writes no images.
  std::int64_t codes = 0;
  std::int64_t code_width = 0;  // width of the code table when an aligner follows it, else 0
  std::int64_t grid_rows = 0;
  std::int64_t grid_cols = 0;
  bool row_end = false;     // a token after each row of codes
  bool image_end = false;   // a token after the last one
  std::int64_t grids = 1;   // grids of codes in a video's stream; an image is one
  bool grid_end = false;    // a token after each grid
  bool stream_end = false;  // a token after everything

  VocabularyGrammar grammar() const {
    return {.codes = to_size(codes),
            .rows = to_size(grid_rows),
            .columns = to_size(grid_cols),
            .row_end = row_end,
            .image_end = image_end,
            .grids = to_size(grids),
            .grid_end = grid_end,
            .stream_end = stream_end};
  }
  // Image codes and control ids, which the code table has rows for.
  std::int64_t image_vocabulary() const { return to_index(grammar().vocabulary()); }
  // Codes of an image or video, and tokens of its stream: the same but for control ids.
  std::int64_t image_codes() const { return grids * grid_rows * grid_cols; }
  std::int64_t image_tokens() const { return to_index(grammar().length()); }
  // Cache positions of one sequence: the prompt, and every token of the stream but the last.
  std::int64_t cache_rows(std::int64_t prompt_tokens) const {
    return prompt_tokens + image_tokens() - 1;
  }
};

// The prompt of the unconditional branch; pad_token is read under kPadBetweenEnds only.
std::vector<std::int32_t> unconditional_prompt(const StreamModelConfig& config,
                                               std::span<const std::int32_t> prompt,
                                               std::int32_t pad_token);

enum class TokenSpace : std::uint8_t { kText, kImage };

struct SpaceWeights {
  Tensor table;      // [ids, D], or [ids, code_width] before an aligner; f32 or bf16
  // [D], one number and zeros: what its rows are multiplied by; empty for 1
  Tensor row_scale, row_shift;
  Linear align_in;   // [D, code_width], empty without an aligner
  Linear align_out;  // [D, D], empty without an aligner
  Linear head_in;    // [D, D], gelu after it; empty for a plain head
  Linear head_out;   // [logit ids, D]; empty where the ids are read only
};

struct StreamModelWeights {
  TransformerWeights transformer;
  SpaceWeights text;   // the table of prompts; empty where there are none
  SpaceWeights image;  // empty in a model of text alone
};

// As a TokenModel it is its own stream's: the image space where it writes images, else text.
class StreamModel final : public TokenModel {
 public:
  StreamModel(Backend& backend, const StreamModelConfig& config, StreamModelWeights weights);
  StreamModel(StreamModel&&) noexcept;
  StreamModel& operator=(StreamModel&&) noexcept;
  ~StreamModel() override;

  const StreamModelConfig& config() const;
  bool writes(TokenSpace space) const;
  // Tokens of one space over the same transformer; prompts are read with the text table in both.
  // Lives as long as the model, also when that is moved. expects() writes(space).
  const TokenModel& space(TokenSpace space) const;

  const Transformer& transformer() const override;
  // Image codes, control ids have no logits; or the text vocabulary.
  std::int64_t logit_ids() const override;
  // Of images: ids in [0, prompt_vocab), at most max_prompt of them. out [T, D].
  void embed_prompt(std::span<const std::int32_t> ids, TensorView out) const override;
  // Ids of image codes or control ids, or text. out [M, D].
  void embed_tokens(std::span<const std::int32_t> ids, Arena& arena, TensorView out) const override;
  // hidden [M, D] after the final norm, out [M, logit_ids()] f32.
  void logits(ConstTensorView hidden, Arena& arena, TensorView out) const override;
  std::size_t scratch_bytes(std::int64_t rows) const override;

  std::int64_t image_token_count() const { return config().image_tokens(); }
  // The prompt of the unconditional branch; pad_token is read under kPadBetweenEnds only.
  std::vector<std::int32_t> unconditional_prompt(std::span<const std::int32_t> prompt,
                                                 std::int32_t pad_token) const;
  // scratch_bytes() of a model of this shape.
  static std::size_t scratch_bytes(const StreamModelConfig& config, std::int64_t rows,
                                   const Backend& backend);
  std::size_t weight_bytes() const;
  // Bytes of weights that one decode step reads, the KV cache not counted.
  std::size_t step_weight_bytes() const;

 private:
  struct State;
  const TokenModel& own() const;

  std::unique_ptr<State> state_;
};

}  // namespace tessera
