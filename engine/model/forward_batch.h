// Rows to run through a model's layers, and what may be seen of them on their way.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "engine/cache/kv_cache.h"
#include "engine/core/tensor.h"
#include "engine/model/cross_context.h"

namespace tessera {

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
  // By cache sequence: what its rows attend to next to themselves, where the model does so.
  std::span<const CrossContext* const> contexts = {};
};

// The matrix products of a layer, but for those of attention to other rows.
enum class LayerProduct : std::uint8_t { kQkv, kOut, kGateUp, kDown };

// Sees what passes through the layers of a forward pass: a part of its rows at a time, `first`
// being the row of the batch. Views are valid during the call.
class LayerObserver {
 public:
  virtual ~LayerObserver() = default;
  // q [rows, H, hd] after the rotary embedding, before its keys are asked.
  virtual void queries(std::int64_t /*layer*/, std::int64_t /*first*/, ConstTensorView /*q*/) {}
  // silu(gate) * up, [rows, F].
  virtual void activations(std::int64_t /*layer*/, std::int64_t /*first*/,
                           ConstTensorView /*gated*/) {}
  // Whether inputs() is wanted: normed rows are computed once more for it.
  virtual bool wants_inputs() const { return false; }
  // What a product of the layer takes, [rows, its inputs], on the device.
  virtual void inputs(std::int64_t /*layer*/, LayerProduct /*of*/, ConstTensorView /*rows*/) {}
};

// Optional outputs: hidden_states[i] receives the residual stream that enters layer i, [M, D]; a
// view without data receives nothing.
struct Taps {
  std::span<const TensorView> hidden_states;
  LayerObserver* observer = nullptr;
};

}  // namespace tessera
