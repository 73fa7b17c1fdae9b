// The one transformer of the project: const weights, a forward pass over rows of any number of
// cached sequences. A row's result depends on its own sequence up to itself and on nothing else:
// neither on the rows beside it, nor on the window it came in, nor on threads.
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
#include "engine/model/model_config.h"
#include "engine/nn/linear.h"
#include "engine/nn/rope_table.h"

namespace tessera {

struct LayerWeights {
  Tensor attention_norm;  // [D]
  LinearWeight qkv;       // [(H + 2 KV) hd, D], rows q | k | v
  Tensor qkv_bias;        // [(H + 2 KV) hd], with config.qkv_bias
  LinearWeight out;       // [D, H hd]
  Tensor ffn_norm;        // [D]
  LinearWeight gate_up;   // [2 F, D], rows gate | up
  LinearWeight down;      // [D, F]
  Tensor q_norm, k_norm;  // [hd], with config.qk_norm
  CrossWeights cross;     // with config.context_width
};

struct TransformerWeights {
  std::vector<LayerWeights> layers;
  Tensor final_norm;  // [D]

  std::size_t bytes() const;
};

// Rows of a batch that follow one another in a tree of continuations: they see the first `shared`
// cached rows of their sequence, then those of `seen` in its order, the last of which are the rows
// themselves, each seen from itself on. Without `seen` they are in order: `shared` rows are cached,
// and they see those and one another.
struct RowPath {
  std::int64_t rows = 0;
  std::int64_t shared = 0;
  std::span<const std::int32_t> seen;
};

// Rows to run. Rows of one sequence stand together; each sequence appears once. Without paths every
// row sees all rows of its sequence up to itself. With paths they cover the batch, row after row,
// none of them reaching over two sequences.
struct ForwardBatch {
  ConstTensorView rows;                     // [M, D] f32 embeddings
  std::span<const std::int32_t> sequences;  // [M] cache sequence of each row
  std::span<const std::int64_t> positions;  // [M] row of the rotary table
  // [M] places in time, row and column, where the rotary embedding has three axes (M-RoPE); the
  // positions then only say where rows are cached.
  std::span<const std::array<std::int64_t, 3>> places = {};
  std::span<const RowPath> paths = {};
  // By cache sequence: what its rows attend to beside themselves, where the model does so.
  std::span<const CrossContext* const> contexts = {};
};

// Sees what passes through the layers of a forward pass: a part of its rows at a time, `first`
// being the row of the batch. Views are valid during the call.
class LayerObserver {
 public:
  virtual ~LayerObserver() = default;
  // q [rows, H, hd] behind the rotary embedding, before its keys are asked.
  virtual void queries(std::int64_t /*layer*/, std::int64_t /*first*/, ConstTensorView /*q*/) {}
  // silu(gate) * up, [rows, F].
  virtual void activations(std::int64_t /*layer*/, std::int64_t /*first*/,
                           ConstTensorView /*gated*/) {}
};

// Optional outputs: hidden_states[i] receives the residual stream that enters layer i, [M, D].
struct Taps {
  std::span<const TensorView> hidden_states;
  LayerObserver* observer = nullptr;
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
  // cached. Writes the residual stream behind layer last - 1, [M, D], and after the last layer the
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
  std::size_t weight_bytes() const { return weights_.bytes() + rope_.bytes() + places_.bytes(); }

 private:
  struct Chunk;
  // Opens cache rows for the chunk (or finds those it has), looks up its rotary rows and finds the
  // sequences in it.
  Chunk open_chunk(const ForwardBatch& batch, std::int64_t first, bool append, KvCache& cache,
                   Arena& arena) const;
  void look_up_rotary(const ForwardBatch& batch, Chunk& chunk) const;
  // Replaces the chunk's segments, one a sequence, by one a path.
  static void split_by_paths(const ForwardBatch& batch, Chunk& chunk);
  void run_layers(const Chunk& chunk, LayerRange range, KvCache& cache, TensorView x,
                  const Taps& taps) const;
  void attention_block(const Chunk& chunk, const LayerWeights& weights, std::int64_t layer,
                       KvCache& cache, TensorView x, const Taps& taps) const;
  void norm_heads(TensorView heads, const Tensor& weight) const;
  void cross_block(const Chunk& chunk, const CrossWeights& weights, std::int64_t layer,
                   TensorView x) const;
  static std::span<const std::int64_t> slots_of(const Chunk& chunk, std::int64_t layer,
                                                const KvCache& cache);
  static std::span<const AttentionSegment> segments_of(const Chunk& chunk, std::int64_t layer,
                                                       const KvCache& cache);
  void ffn_block(const Chunk& chunk, const LayerWeights& weights, std::int64_t layer, TensorView x,
                 const Taps& taps) const;

  Backend* backend_;
  ModelConfig config_;
  TransformerWeights weights_;
  RopeTable rope_;
  Tensor places_;  // [rope rows, D] bf16, with config.added_places
};

}  // namespace tessera
