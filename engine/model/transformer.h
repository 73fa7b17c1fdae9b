// The one transformer of the project: const weights, a forward pass over rows of any number of
// cached sequences. A row's result depends on its own sequence up to itself and on nothing else:
// neither on the rows next to it, nor on the window it came in, nor on threads.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/backend/backend.h"
#include "engine/cache/kv_cache.h"
#include "engine/core/tensor.h"
#include "engine/model/cross_context.h"
#include "engine/model/forward_batch.h"
#include "engine/model/model_config.h"
#include "engine/nn/linear.h"
#include "engine/nn/rope_table.h"

namespace tessera {

struct LayerWeights {
  Tensor attention_norm;  // [D], with config.input_norms
  LinearWeight qkv;       // [(H + 2 KV) hd, D], rows q | k | v
  Tensor qkv_bias;        // [(H + 2 KV) hd], with config.qkv_bias
  LinearWeight out;       // [D, H hd]
  Tensor ffn_norm;        // [D], with config.input_norms
  LinearWeight gate_up;   // [2 F, D], rows gate | up
  LinearWeight down;      // [D, F]
  Tensor q_norm, k_norm;  // [hd], with config.qk_norm
  // [D], with config.result_norms
  Tensor attention_result_norm, ffn_result_norm;
  Tensor out_bias;        // [D], with config.out_bias
  Tensor gate_up_bias;    // [2 F], with config.ffn_bias
  Tensor down_bias;       // [D], with config.ffn_bias
  CrossWeights cross;     // with config.context_width
  Tensor head_scale, head_shift;  // [H + KV, hd] of queries and keys, with config.head_norms
};

struct TransformerWeights {
  std::vector<LayerWeights> layers;
  Tensor final_norm;  // [D]

  std::size_t bytes() const;
};

// Layers [first, last) of a forward pass that is run in parts.
struct LayerRange {
  std::int64_t first = 0, last = 0;
};

class Transformer {
 public:
  Transformer(Backend& backend, const ModelConfig& config, TransformerWeights weights);

  // Appends the rows to their sequences in `cache` and writes the hidden states after the final
  // norm to hidden_out [M, D]. Takes scratch_bytes(config, M, backend) from the arena and gives it
  // back. Batches of more rows than the backend takes at once run in parts, which changes no result
  // and bounds the activations.
  // The rows must fit the cache, the positions the rotary table.
  void forward(const ForwardBatch& batch, KvCache& cache, Arena& arena, TensorView hidden_out,
               const Taps& taps = {}) const;

  // The same for a part of the layers. In the first part (range.first = 0) rows are embeddings and
  // appended to the cache; in a later one they are what the part before wrote, or of each sequence
  // the rows that were kept of it, after the cache was cut by the others: the last ones that are
  // cached. Writes the residual stream after layer last - 1, [M, D], and after the last layer the
  // hidden states after the final norm.
  void forward_layers(const ForwardBatch& batch, LayerRange range, KvCache& cache, Arena& arena,
                      TensorView out, const Taps& taps = {}) const;

  // Keys and values of the rows [S, context_width] f32 (on the device) that sequences attend to,
  // kept as f32 or bf16. Error kMemory.
  CrossContext make_context(ConstTensorView rows, DType storage) const;

  static std::size_t scratch_bytes(const ModelConfig& config, std::int64_t rows,
                                   const Backend& backend);

  const ModelConfig& config() const { return config_; }
  Backend& backend() const { return *backend_; }
  const RopeTable& rope() const { return rope_; }
  std::size_t weight_bytes() const {
    return weights_.bytes() + rope_.bytes() + window_rope_.bytes() + places_.bytes();
  }

 private:
  struct Chunk;
  // Opens cache rows for the chunk (or finds those it has), looks up its rotary rows and finds the
  // sequences in it.
  Chunk open_chunk(const ForwardBatch& batch, std::int64_t first, bool append, KvCache& cache,
                   Arena& arena) const;
  void look_up_rotary(const ForwardBatch& batch, Chunk& chunk) const;
  // What attention or the feed-forward part reads, normed where the model does that, times a weight.
  void input_product(ConstTensorView x, const Tensor& norm, const LinearWeight& weight,
                     const Tensor& bias, TensorView scratch, TensorView out) const;
  // Adds what a part gave to the residual stream, normed first where the model does that.
  void add_result(ConstTensorView rows, const LinearWeight& weight, const Tensor& bias,
                  const Tensor& norm, TensorView x, TensorView scratch) const;
  // Replaces the chunk's segments, one a sequence, by one a path.
  static void split_by_paths(const ForwardBatch& batch, Chunk& chunk);
  void run_layers(const Chunk& chunk, LayerRange range, KvCache& cache, TensorView x,
                  const Taps& taps) const;
  void attention_block(const Chunk& chunk, const LayerWeights& weights, std::int64_t layer,
                       KvCache& cache, TensorView x, const Taps& taps) const;
  static void show_inputs(std::int64_t layer, LayerProduct of, ConstTensorView rows,
                          const Taps& taps);
  void show_normed(ConstTensorView x, const Tensor& norm, std::int64_t layer, LayerProduct of,
                   TensorView scratch, const Taps& taps) const;
  void norm_heads(TensorView heads, const Tensor& weight) const;
  void cross_block(const Chunk& chunk, const CrossWeights& weights, std::int64_t layer,
                   TensorView x) const;
  static std::span<const std::int64_t> slots_of(const Chunk& chunk, std::int64_t layer,
                                                const KvCache& cache);
  static std::span<const AttentionSegment> segments_of(const Chunk& chunk, std::int64_t layer,
                                                       const KvCache& cache);
  // The same for a layer with a window: rows that see fewer keys than there are have a segment each.
  std::span<const AttentionSegment> windowed_segments(const Chunk& chunk, std::int64_t layer,
                                                      const KvCache& cache) const;
  void ffn_block(const Chunk& chunk, const LayerWeights& weights, std::int64_t layer, TensorView x,
                 const Taps& taps) const;

  Backend* backend_;
  ModelConfig config_;
  TransformerWeights weights_;
  RopeTable rope_, window_rope_;  // the second one empty without windows
  Tensor places_;  // [rope rows, D] bf16, with config.added_places
};

}  // namespace tessera
