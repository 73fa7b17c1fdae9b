// A decoder-only transformer that reads and predicts a block of tokens at a time (next-block
// prediction, Ren et al. 2025): learned positions, pre-norm blocks of LayerNorm, attention with as
// many key as query heads, and an exact GELU, all with biases. Tokens come in spans: those of one
// span see one another and all that stood before. The row of a token gives the distribution of the
// token at its place in the next block. Rows of several streams run in one pass.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/backend/backend.h"
#include "engine/core/index.h"
#include "engine/core/tensor.h"
#include "engine/model/pass_model.h"
#include "engine/nn/linear.h"

namespace tessera {

// How a stream begins that nothing was given of.
enum class BlockStart : std::uint8_t {
  // A begin token after the prompt, then the first block token by token; after its last token
  // stand placeholders, which make it the block that the second one is predicted from.
  kHybrid,
  kGiven,  // not at all: at least one block is given
};

struct BlockModelConfig {
  std::int64_t layers = 0, width = 0, heads = 0;     // L, D, H; H divides D
  std::int64_t positions = 5120;                     // rows of the position table
  std::int64_t vocabulary = 0;                       // rows of the token table and of the head
  std::int64_t first_code = 0, codes = 0;            // ids of image codes among them
  std::int64_t first_condition = 0, conditions = 0;  // ids of a prompt's tokens; 0 = no prompt
  std::int64_t block = 16;                           // tokens
  // kHybrid: id 0 is the begin token, ids 1 ... block - 1 are the placeholders.
  BlockStart start = BlockStart::kHybrid;
  float norm_eps = 1e-5f;

  std::int64_t head_dim() const { return width / heads; }
  ModelConfig sizes() const {
    return {.layers = layers,
            .width = width,
            .heads = heads,
            .kv_heads = heads,
            .head_dim = head_dim(),
            .ffn_width = 4 * width};
  }
  // Ids of a stream: codes, then the begin token and the fillers.
  BlockReading reading() const {
    return {.block = block,
            .begins = start == BlockStart::kHybrid,
            .begin_id = narrow<std::int32_t>(codes)};
  }
  // Cached rows of a video: its prompt, and all tokens that something is predicted from.
  std::int64_t cache_rows(std::int64_t prompt_tokens, std::int64_t stream) const {
    return prompt_tokens + reading().rows_of(stream - block);
  }
};

struct BlockLayerWeights {
  Tensor attention_norm, attention_norm_bias;  // [D]
  Linear qkv;                                  // [3 D, D], rows q | k | v
  Linear out;                                  // [D, D]
  Tensor ffn_norm, ffn_norm_bias;              // [D]
  Linear up, down;                             // [4 D, D], [D, 4 D]
};

struct BlockModelWeights {
  Tensor token_table;     // [vocabulary, D] f32 or bf16
  Tensor position_table;  // [positions, D], any rank whose last extent is D
  std::vector<BlockLayerWeights> layers;
  Tensor final_norm, final_norm_bias;  // [D]
  Linear head;                         // [codes, D]: rows of the image codes alone
};

class BlockModel final : public PassModel {
 public:
  BlockModel(Backend& backend, const BlockModelConfig& config, BlockModelWeights weights);

  const BlockModelConfig& config() const { return config_; }
  Backend& backend() const override { return *backend_; }
  const ModelConfig& sizes() const override { return sizes_; }
  BlockReading reading() const override { return config_.reading(); }
  std::int64_t logit_ids() const override { return config_.codes; }

  // Ids of config().conditions, from 0.
  void embed_prompt(std::span<const std::int32_t> ids, TensorView out) const override;
  // Ids of reading().
  void embed_tokens(std::span<const std::int32_t> ids, Arena& arena, TensorView out) const override;
  // Each path of the batch is a span of rows that see one another and all that their sequence has
  // cached; what else a path says is not read. Without paths a sequence's rows are one. A row's
  // position is its row of the position table. Takes scratch_bytes() from the arena and gives it
  // back.
  void forward(const ForwardBatch& batch, KvCache& cache, Arena& arena, TensorView hidden,
               const Taps& taps) const override;
  void logits(ConstTensorView hidden, Arena& arena, TensorView out) const override;
  std::size_t scratch_bytes(std::int64_t rows) const override {
    return scratch_bytes(config_, rows);
  }

  static std::size_t scratch_bytes(const BlockModelConfig& config, std::int64_t max_rows);
  static std::size_t weight_bytes(const BlockModelConfig& config, const Backend& backend,
                                  DType storage);

 private:
  struct Pass;
  Pass open_pass(const ForwardBatch& batch, KvCache& cache, Arena& arena) const;
  void attention_block(const BlockLayerWeights& weights, std::int64_t layer, const Pass& pass,
                       TensorView x) const;
  void ffn_block(const BlockLayerWeights& weights, const Pass& pass, TensorView x) const;

  Backend* backend_;
  BlockModelConfig config_;
  ModelConfig sizes_;
  BlockModelWeights weights_;
};

}  // namespace tessera
