#include "engine/model/cache_slide.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include "engine/core/index.h"
#include "engine/ops/ops.h"

namespace tessera {

namespace {

constexpr std::int64_t kRowsAtOnce = 64;

// Some rows of a sequence that move together.
struct Move {
  std::vector<std::int32_t> from;  // slots
  std::vector<std::int64_t> to;
  Tensor rows;      // [rows, kv_heads * hd]
  Tensor cos, sin;  // [rows, hd / 2]
};

TensorView first_rows(Tensor& matrix, std::int64_t rows) {
  const TensorView view = matrix.view();
  return {view.dtype, Shape{rows, matrix.shape()[1]}, view.data, view.device};
}

// Reads the rows of one table as f32, turns them if they are keys, and stores them.
void move_rows(const Transformer& transformer, Move& move, TensorView table, bool turned) {
  Backend& backend = transformer.backend();
  const auto count = std::ssize(move.from);
  const std::int64_t heads = table.shape[1], head_dim = cached_head(table);
  const TensorView rows = first_rows(move.rows, count);
  ops::load_rows(backend, table, move.from, rows);
  if (turned) {
    ops::rope(backend, {rows.dtype, Shape{count, heads, head_dim}, rows.data, rows.device},
              first_rows(move.cos, count), first_rows(move.sin, count), transformer.rope().pairing);
  }
  ops::store_rows(backend, rows.f32(), heads * head_dim, move.to, table);
}

}  // namespace

void slide_cache(const Transformer& transformer, KvCache& cache, std::int64_t sequence,
                 std::int64_t first, std::int64_t count) {
  const RopeSpec& rope = transformer.config().rope;
  expects(rope.layout == RopeLayout::kOneD && !rope.three_axes(), "positions have one axis");
  const KvCacheShape& shape = cache.shape();
  expects(shape.sequences * shape.capacity <= std::numeric_limits<std::int32_t>::max(),
          "slots are counted in 32 bits");
  const std::span<const std::int64_t> all = cache.positions(sequence);
  const auto after = all.subspan(to_size(first + count));
  const std::vector<std::int64_t> from(after.begin(), after.end());
  std::vector<std::int64_t> to = from;
  for (std::int64_t& position : to) position -= count;
  cache.slide(sequence, first, count);
  if (from.empty() || count == 0) return;

  Backend& backend = transformer.backend();
  const std::int64_t half = shape.head_dim / 2;
  const Shape turns{std::ssize(from), half};
  Tensor cos = Tensor::host(DType::kF32, turns), sin = Tensor::host(DType::kF32, turns);
  fill_turns(backend, transformer.rope(), from, to, cos.f32(), sin.f32());
  Move move;
  move.rows = backend.allocate(DType::kF32, Shape{kRowsAtOnce, shape.kv_heads * shape.head_dim});
  move.cos = backend.allocate(DType::kF32, Shape{kRowsAtOnce, half});
  move.sin = backend.allocate(DType::kF32, Shape{kRowsAtOnce, half});
  // Rows move down, the lowest first: none is written over before it was read.
  for (std::int64_t begin = 0; begin < turns[0]; begin += kRowsAtOnce) {
    const std::int64_t rows = std::min(kRowsAtOnce, turns[0] - begin);
    move.to.resize(to_size(rows));
    std::iota(move.to.begin(), move.to.end(), cache.slot(sequence, first + begin));
    move.from.assign(move.to.begin(), move.to.end());
    for (std::int32_t& slot : move.from) slot += narrow<std::int32_t>(count);
    for (const auto& [host, device] : {std::pair{&cos, &move.cos}, std::pair{&sin, &move.sin}}) {
      backend.upload({DType::kF32, Shape{rows, half}, host->f32() + begin * half, Device{}},
                     first_rows(*device, rows));
    }
    for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
      move_rows(transformer, move, cache.key_slots(layer), true);
      move_rows(transformer, move, cache.value_slots(layer), false);
    }
  }
  backend.synchronize();
}

}  // namespace tessera
