// Keys and values of every layer for a fixed number of sequences, allocated once. A row is one
// cached position; rows of a sequence lie in the order they were appended, and each carries the
// position (the rotary table row) it was computed at, so that removing rows never renumbers the
// others.
//
// A sequence may have lost rows in its upper layers: tokens that a pruner dropped inside the model
// were cached below it and never reached the layers above. Rows are counted as in layer 0
// throughout; a layer that misses some keeps row r at r less what it misses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/backend/backend.h"
#include "engine/core/tensor.h"

namespace tessera {

struct KvCacheShape {
  std::int64_t layers = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t capacity = 0;  // rows per sequence
  std::int64_t sequences = 0;
  DType dtype = DType::kF32;  // of cached_types()

  // Keys and values of all layers and sequences.
  std::size_t bytes() const;
};

class KvCache {
 public:
  // Error kMemory if the device cannot hold shape.bytes(). Nothing is allocated after this.
  KvCache(Backend& backend, const KvCacheShape& shape);

  const KvCacheShape& shape() const { return shape_; }
  std::int64_t length(std::int64_t sequence) const;
  std::int64_t room(std::int64_t sequence) const { return shape_.capacity - length(sequence); }
  // Positions of the cached rows, oldest first.
  std::span<const std::int64_t> positions(std::int64_t sequence) const;

  // Opens rows for `positions` at the end of a sequence and returns the index of the first; the
  // caller then stores keys and values of every layer there. The rows must fit (see room()).
  std::int64_t append(std::int64_t sequence, std::span<const std::int64_t> positions);
  // Forgets all rows from index `rows` on. Rows before a cut go all together (rows = 0), and the
  // cut with them.
  void truncate(std::int64_t sequence, std::int64_t rows);
  // Layers from `layer` on hold `rows` fewer of the rows cached so far than the layer below it; what
  // is left of them is for the caller to store there, at the end. Cuts ascend by layer.
  void cut(std::int64_t sequence, std::int64_t layer, std::int64_t rows);
  // Rows that a layer misses.
  std::int64_t missing(std::int64_t layer, std::int64_t sequence) const;
  // The child becomes a copy of the parent; costs one copy of the parent's rows.
  void fork(std::int64_t parent, std::int64_t child);
  // The child becomes the first `rows` rows of a parent that was not cut below them.
  void fork(std::int64_t parent, std::int64_t child, std::int64_t rows);
  // Keeps the first `shared` rows and those with these indices (ascending, unique, not below
  // `shared`), and moves them together.
  void compact(std::int64_t sequence, std::span<const std::int64_t> kept, std::int64_t shared = 0);

  // Forgets rows [first, first + count) of a sequence that was not cut: those after them are counted
  // `count` lower, and so are their positions. Their keys and values are for slide_cache()
  // (engine/model) to move, as rotated keys belong to their positions.
  void slide(std::int64_t sequence, std::int64_t first, std::int64_t count);

  // [capacity, kv_heads, stored] of one sequence; see engine/core/cached_type.h.
  ConstTensorView keys(std::int64_t layer, std::int64_t sequence) const;
  ConstTensorView values(std::int64_t layer, std::int64_t sequence) const;
  // [sequences * capacity, kv_heads, stored]: where rows of any sequence are stored, by slot().
  TensorView key_slots(std::int64_t layer);
  TensorView value_slots(std::int64_t layer);
  std::int64_t slot(std::int64_t sequence, std::int64_t row) const {
    return sequence * shape_.capacity + row;
  }

 private:
  // Rows of a layer as they are stored.
  void copy_rows(std::int64_t from_slot, std::int64_t to_slot, std::int64_t rows,
                 std::int64_t layer);
  ConstTensorView sequence_view(const Tensor& table, std::int64_t sequence) const;
  void check_sequence(std::int64_t sequence) const;

  Backend* backend_;
  KvCacheShape shape_;
  std::vector<Tensor> keys_, values_;    // per layer
  std::vector<std::int64_t> lengths_;    // per sequence
  std::vector<std::int64_t> positions_;  // [sequences, capacity]
  std::vector<std::int64_t> missing_;    // [sequences, layers]
  std::vector<std::int64_t> cut_at_;     // per sequence: its length when it was last cut
};

}  // namespace tessera
