// A decoder-only transformer that reads and predicts a block of tokens at a time (next-block
// prediction, Ren et al. 2025): learned positions, pre-norm blocks of LayerNorm, attention with as
// many key as query heads, and an exact GELU, all with biases. Tokens come in spans: those of one
// span see one another and all that stood before. The row of a token gives the law of the token at
// its place in the next block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/backend/backend.h"
#include "engine/cache/kv_cache.h"
#include "engine/core/tensor.h"
#include "engine/nn/linear.h"

namespace tessera {

// How a stream begins that nothing was given of.
enum class BlockStart : std::uint8_t {
  // A begin token behind the prompt, then the first block token by token; behind its last token
  // stand placeholders, which make it the block that the second one is predicted from.
  kHybrid,
  kGiven,  // not at all: at least one block is given
};

struct BlockModelConfig {
  std::int64_t layers = 0, width = 0, heads = 0;     // L, D, H; H divides D
  std::int64_t positions = 5120;                     // rows of the position table
  std::int64_t vocabulary = 0;                       // rows of the token table and of the head
  std::int64_t first_code = 0, codes = 0;            // ids of picture codes among them
  std::int64_t first_condition = 0, conditions = 0;  // ids of a prompt's tokens; 0 = no prompt
  std::int64_t block = 16;                           // tokens
  // kHybrid: id 0 is the begin token, ids 1 ... block - 1 are the placeholders.
  BlockStart start = BlockStart::kHybrid;
  float norm_eps = 1e-5f;

  std::int64_t head_dim() const { return width / heads; }
  // Cached rows of a clip: its prompt, and all tokens that something is predicted from.
  std::int64_t cache_rows(std::int64_t prompt_tokens, std::int64_t stream) const {
    return prompt_tokens + stream - (start == BlockStart::kGiven ? block : 0);
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
  Linear head;                         // [codes, D]: rows of the picture codes alone
};

class BlockModel {
 public:
  BlockModel(Backend& backend, const BlockModelConfig& config, BlockModelWeights weights);

  const BlockModelConfig& config() const { return config_; }
  Backend& backend() const { return *backend_; }

  // Runs the spans of tokens `ids`, at most `most_rows` of scratch_bytes() together, behind what
  // sequence 0 of the cache holds, and writes the hidden rows after the final norm to out [M, D].
  // `spans` are lengths, their sum M. Positions go on from the cached ones. Takes its activations
  // from the arena and gives them back.
  void forward(std::span<const std::int32_t> ids, std::span<const std::int64_t> spans,
               KvCache& cache, Arena& arena, TensorView out) const;
  // hidden [M, D] -> out [M, codes] f32.
  void logits(ConstTensorView hidden, TensorView out) const;

  KvCacheShape cache_shape(std::int64_t capacity, DType dtype) const;
  static std::size_t scratch_bytes(const BlockModelConfig& config, std::int64_t most_rows);
  static std::size_t weight_bytes(const BlockModelConfig& config, const Backend& backend,
                                  DType storage);

 private:
  struct Pass;
  void attention_block(const BlockLayerWeights& weights, std::int64_t layer, const Pass& pass,
                       TensorView x) const;
  void ffn_block(const BlockLayerWeights& weights, const Pass& pass, TensorView x) const;

  Backend* backend_;
  BlockModelConfig config_;
  BlockModelWeights weights_;
};

}  // namespace tessera
