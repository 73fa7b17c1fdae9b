// Pre-norm transformer blocks (Touvron et al. 2023) over the ops of one backend.
#include "engine/model/transformer.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>

#include "engine/core/index.h"
#include "engine/core/cached_type.h"
#include "engine/nn/pass_views.h"

namespace tessera {

namespace {

ConstTensorView rows_of(ConstTensorView matrix, std::int64_t first, std::int64_t rows) {
  const std::int64_t cols = matrix.shape[1];
  return {matrix.dtype, Shape{rows, cols},
          matrix.raw() + to_size(first * cols) * dtype_size(matrix.dtype), matrix.device};
}

TensorView rows_of(TensorView matrix, std::int64_t first, std::int64_t rows) {
  const ConstTensorView view = rows_of(ConstTensorView(matrix), first, rows);
  return {view.dtype, view.shape, const_cast<void*>(view.data), view.device};
}

// Rows of a cache from `first` on.
ConstTensorView cache_rows_from(const ConstTensorView& cache, std::int64_t first) {
  return {cache.dtype, Shape{cache.shape[0] - first, cache.shape[1], cache.shape[2]},
          cache.raw() + cached_row(cache, first), cache.device};
}

constexpr float kHeadNormEps = 1e-5f;

// A bias, or none.
ConstTensorView bias_view(const Tensor& bias) {
  return bias.empty() ? ConstTensorView{} : bias.view();
}

}  // namespace

std::size_t TransformerWeights::bytes() const {
  std::size_t sum = final_norm.bytes();
  for (const LayerWeights& layer : layers) {
    sum += layer.qkv.packed.bytes() + layer.qkv_bias.bytes() + layer.out.packed.bytes() +
           layer.gate_up.packed.bytes() + layer.down.packed.bytes() + layer.q_norm.bytes() +
           layer.k_norm.bytes() + layer.cross.bytes();
    for (const Tensor* other : {&layer.out_bias, &layer.gate_up_bias, &layer.down_bias,
                                &layer.attention_result_norm, &layer.ffn_result_norm,
                                &layer.attention_norm, &layer.ffn_norm, &layer.head_scale,
                                &layer.head_shift}) {
      sum += other->empty() ? 0 : other->bytes();
    }
  }
  return sum;
}

// One part of a batch, with what all layers share.
struct Transformer::Chunk {
  std::int64_t first = 0;  // row of the batch
  std::int64_t rows = 0;
  std::span<AttentionSegment> segments;  // of a layer that misses nothing
  std::span<std::int64_t> sequence_of_segment;
  std::span<const std::int32_t> sequences;        // of each row
  std::span<const std::int64_t> cached;           // row of its sequence in the cache, of each row
  std::span<const std::int64_t> identity;         // 0..rows-1
  ConstTensorView cos, sin;                       // [rows, hd / 2]
  ConstTensorView window_cos, window_sin;         // the same of layers with a window
  ConstTensorView places;                         // [rows, D], with config.added_places
  std::span<const CrossContext* const> contexts;  // by sequence
  Arena* arena = nullptr;
};

Transformer::Transformer(Backend& backend, const ModelConfig& config, TransformerWeights weights)
    : backend_(&backend),
      config_(config),
      weights_(std::move(weights)),
      rope_(make_rope_table(backend, config.rope, config.head_dim)) {
  if (config.added_places) places_ = make_place_table(backend, config.rope, config.width);
  if (!config.windowed.empty()) {
    expects(config.window > 0 && std::ssize(config.windowed) == config.layers &&
                config.window_rope.pairing == config.rope.pairing && !config.rope.three_axes(),
            "every layer has a window or none");
    window_rope_ = make_rope_table(backend, config.window_rope, config.head_dim);
  }
  expects(std::ssize(weights_.layers) == config.layers, "weights for every layer");
  expects(config.heads > 0 && config.kv_heads > 0 && config.heads % config.kv_heads == 0,
          "query heads are shared out evenly");
  const auto& sections = config.rope.sections;
  expects(
      !config.rope.three_axes() || sections[0] + sections[1] + sections[2] == config.head_dim / 2,
      "three axes share the pairs of a head");
}

std::size_t Transformer::scratch_bytes(const ModelConfig& config, std::int64_t rows,
                                       const Backend& backend) {
  const std::int64_t m = std::min(rows, backend.rows_at_once());
  const auto segment_bytes = to_index(sizeof(AttentionSegment));
  const std::size_t tables =
      2 * matrix_bytes(m, config.head_dim / 2) + matrix_bytes(m, 1, 4) +
      (config.rope.three_axes() ? matrix_bytes(m, config.head_dim / 2) + matrix_bytes(m, 1, 8)
                                : 0) +
      (config.windowed.empty() ? 0 : 2 * matrix_bytes(m, config.head_dim / 2)) +
      (config.added_places ? matrix_bytes(m, config.width) : 0);
  const std::size_t shared = 3 * matrix_bytes(m, 1, 8) + matrix_bytes(m, segment_bytes, 1) +
                             tables + 2 * matrix_bytes(m, config.width);  // x and its norm
  const std::size_t attention = matrix_bytes(m, config.q_width() + 2 * config.kv_width()) +
                                2 * matrix_bytes(m, config.q_width()) +
                                matrix_bytes(m, config.kv_width()) + matrix_bytes(m, 1, 8) +
                                (config.windowed.empty() ? 1 : 2) *
                                    matrix_bytes(m, segment_bytes, 1);
  const std::size_t ffn = matrix_bytes(m, 2 * config.ffn_width) + matrix_bytes(m, config.ffn_width);
  return shared + std::max(attention, ffn);
}

Transformer::Chunk Transformer::open_chunk(const ForwardBatch& batch, std::int64_t first,
                                           bool append, KvCache& cache, Arena& arena) const {
  Chunk chunk;
  chunk.first = first;
  chunk.rows = std::min(backend_->rows_at_once(), batch.rows.shape[0] - first);
  chunk.arena = &arena;
  const auto count = to_size(chunk.rows);
  const auto sequences = batch.sequences.subspan(to_size(first), count);
  const auto positions = batch.positions.subspan(to_size(first), count);
  auto* cached = arena.take_host<std::int64_t>(chunk.rows).data();
  auto* identity = arena.take_host<std::int64_t>(chunk.rows).data();
  auto* owners = arena.take_host<std::int64_t>(chunk.rows).data();
  auto* segments = arena.take_host<AttentionSegment>(chunk.rows).data();
  std::size_t segment_count = 0;
  for (std::size_t at = 0; at < count;) {
    std::size_t end = at;
    while (end < count && sequences[end] == sequences[at]) ++end;
    std::int64_t row = 0;
    if (append) {
      row = cache.append(sequences[at], positions.subspan(at, end - at));
    } else {  // the last rows cached, as many as the batch has from here on
      const auto from = batch.sequences.begin() + first + to_index(at);
      const auto other = std::find_if(from, batch.sequences.end(),
                                      [&](std::int32_t s) { return s != sequences[at]; });
      row = cache.length(sequences[at]) - (other - from);
    }
    AttentionSegment* segment = std::construct_at(segments + segment_count);
    segment->row_begin = to_index(at);
    segment->rows = to_index(end - at);
    segment->first_visible = row;
    owners[segment_count++] = sequences[at];
    for (std::size_t i = at; i < end; ++i) {
      cached[i] = row + to_index(i - at);
      identity[i] = to_index(i);
    }
    at = end;
  }
  chunk.segments = {segments, segment_count};
  chunk.sequence_of_segment = {owners, segment_count};
  if (!batch.paths.empty()) split_by_paths(batch, chunk);
  chunk.sequences = sequences;
  chunk.cached = {cached, count};
  chunk.identity = {identity, count};
  chunk.contexts = batch.contexts;
  look_up_rotary(batch, chunk);
  return chunk;
}

void Transformer::look_up_rotary(const ForwardBatch& batch, Chunk& chunk) const {
  Arena& arena = *chunk.arena;
  const std::int64_t half = config_.head_dim / 2;
  const auto count = to_size(chunk.rows);
  const auto first = to_size(chunk.first);
  const TensorView cos = arena.take(DType::kF32, Shape{chunk.rows, half});
  const TensorView sin = arena.take(DType::kF32, Shape{chunk.rows, half});
  auto* table_rows = arena.take_host<std::int32_t>(chunk.rows).data();
  const auto look_up = [&](std::size_t row, std::int64_t place) {
    expects(place >= 0 && place < rope_.cos.shape()[0], "the rotary table has this position");
    table_rows[row] = narrow<std::int32_t>(place);
  };
  chunk.cos = cos;
  chunk.sin = sin;
  if (config_.added_places) {
    const TensorView added = arena.take(DType::kF32, Shape{chunk.rows, config_.width});
    for (std::size_t i = 0; i < count; ++i) look_up(i, batch.positions[first + i]);
    ops::embedding(*backend_, places_.view(), {table_rows, count}, added);
    chunk.places = added;
  }
  if (!config_.rope.three_axes()) {
    for (std::size_t i = 0; i < count; ++i) look_up(i, batch.positions[first + i]);
    ops::embedding(*backend_, rope_.cos.view(), {table_rows, count}, cos);
    ops::embedding(*backend_, rope_.sin.view(), {table_rows, count}, sin);
    if (config_.windowed.empty()) return;
    const TensorView window_cos = arena.take(DType::kF32, Shape{chunk.rows, half});
    const TensorView window_sin = arena.take(DType::kF32, Shape{chunk.rows, half});
    ops::embedding(*backend_, window_rope_.cos.view(), {table_rows, count}, window_cos);
    ops::embedding(*backend_, window_rope_.sin.view(), {table_rows, count}, window_sin);
    chunk.window_cos = window_cos;
    chunk.window_sin = window_sin;
    return;
  }
  // Whole rows of each axis, then its columns of them, in pieces that divide all three sections.
  expects(batch.places.size() == batch.positions.size(), "three places a row");
  const auto& sections = config_.rope.sections;
  const std::int64_t piece = std::gcd(std::gcd(sections[0], sections[1]), sections[2]);
  const TensorView whole = arena.take(DType::kF32, Shape{chunk.rows, half});
  auto* slots = arena.take_host<std::int64_t>(chunk.rows).data();
  std::int64_t begin = 0;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    for (std::size_t i = 0; i < count; ++i) look_up(i, batch.places[first + i][axis]);
    for (const auto& [table, out] : {std::pair{&rope_.cos, cos}, std::pair{&rope_.sin, sin}}) {
      ops::embedding(*backend_, table->view(), {table_rows, count}, whole);
      const TensorView pieces{DType::kF32, Shape{chunk.rows * half / piece, 1, piece}, out.data,
                              out.device};
      for (std::int64_t pair = begin; pair < begin + sections[axis]; pair += piece) {
        for (std::int64_t i = 0; i < chunk.rows; ++i) slots[i] = (i * half + pair) / piece;
        ops::store_rows(*backend_, whole.f32() + pair, half, {slots, count}, pieces);
      }
    }
    begin += sections[axis];
  }
}

// The arrays of the chunk have room for a segment a row.
void Transformer::split_by_paths(const ForwardBatch& batch, Chunk& chunk) {
  std::int64_t* owners = chunk.sequence_of_segment.data();
  std::size_t count = 0;
  std::int64_t begin = 0;  // of the path in the batch
  for (const RowPath& path : batch.paths) {
    const auto length = std::ssize(path.seen);
    const bool in_order = path.seen.empty();
    expects((in_order || length >= path.rows) && path.rows > 0, "rows of a path see themselves");
    // Its rows [from, to) are in this chunk.
    const std::int64_t from = std::max<std::int64_t>(chunk.first - begin, 0);
    const std::int64_t to = std::min(chunk.first + chunk.rows - begin, path.rows);
    if (from < to) {
      const std::int64_t seen = in_order ? 0 : length - path.rows;
      AttentionSegment* segment = std::construct_at(chunk.segments.data() + count);
      segment->row_begin = begin + from - chunk.first;
      segment->rows = to - from;
      segment->first_visible = path.shared + seen + from;
      if (!in_order) {
        segment->listed_from = path.shared;
        segment->listed = path.seen.first(to_size(seen + to));
      }
      owners[count++] = nth(batch.sequences, begin + from);
    }
    begin += path.rows;
  }
  expects(begin == batch.rows.shape[0], "paths cover the batch");
  chunk.segments = {chunk.segments.data(), count};
  chunk.sequence_of_segment = {owners, count};
}

void Transformer::forward(const ForwardBatch& batch, KvCache& cache, Arena& arena,
                          TensorView hidden_out, const Taps& taps) const {
  forward_layers(batch, {0, config_.layers}, cache, arena, hidden_out, taps);
}

void Transformer::forward_layers(const ForwardBatch& batch, LayerRange range, KvCache& cache,
                                 Arena& arena, TensorView hidden_out, const Taps& taps) const {
  expects(range.first >= 0 && range.first < range.last && range.last <= config_.layers,
          "layers of the model");
  expects(batch.rows.shape.rank() == 2 && batch.rows.shape[1] == config_.width,
          "rows are [M, width]");
  const std::int64_t total = batch.rows.shape[0];
  expects(std::ssize(batch.sequences) == total && std::ssize(batch.positions) == total,
          "every row has a sequence and a position");
  expects(hidden_out.shape == batch.rows.shape, "hidden states are [M, width]");
  expects(taps.hidden_states.empty() || std::ssize(taps.hidden_states) == config_.layers,
          "one tap a layer");
  for (std::int64_t first = 0; first < total; first += backend_->rows_at_once()) {
    const std::size_t mark = arena.used();
    const Chunk chunk = open_chunk(batch, first, range.first == 0, cache, arena);
    const TensorView x = arena.take(DType::kF32, Shape{chunk.rows, config_.width});
    ops::store_rows(*backend_, batch.rows.f32() + first * config_.width, config_.width,
                    chunk.identity, heads_of(x, 1));
    run_layers(chunk, range, cache, x, taps);
    const TensorView out = rows_of(hidden_out, first, chunk.rows);
    if (range.last == config_.layers) {
      ops::rms_norm(*backend_, x, weights_.final_norm.view(), config_.norm_eps, out);
    } else {
      ops::store_rows(*backend_, x.f32(), config_.width, chunk.identity, heads_of(out, 1));
    }
    arena.rewind(mark);
  }
}

void Transformer::run_layers(const Chunk& chunk, LayerRange range, KvCache& cache, TensorView x,
                             const Taps& taps) const {
  for (std::int64_t layer = range.first; layer < range.last; ++layer) {
    if (!chunk.places.empty()) ops::add(*backend_, x, chunk.places, x);
    const auto tap = taps.hidden_states.empty() ? TensorView{} : nth(taps.hidden_states, layer);
    if (tap.data != nullptr) {
      ops::store_rows(*backend_, x.f32(), config_.width, chunk.identity,
                      heads_of(rows_of(tap, chunk.first, chunk.rows), 1));
    }
    const LayerWeights& weights = nth(weights_.layers, layer);
    attention_block(chunk, weights, layer, cache, x, taps);
    if (config_.context_width > 0) cross_block(chunk, weights.cross, layer, x);
    ffn_block(chunk, weights, layer, x, taps);
  }
}

void Transformer::attention_block(const Chunk& chunk, const LayerWeights& weights,
                                  std::int64_t layer, KvCache& cache, TensorView x,
                                  const Taps& taps) const {
  Arena& arena = *chunk.arena;
  const std::size_t mark = arena.used();
  const std::int64_t m = chunk.rows;
  const std::int64_t q_width = config_.q_width();
  const std::int64_t kv_width = config_.kv_width();
  const std::int64_t stride = q_width + 2 * kv_width;
  const TensorView normed = arena.take(DType::kF32, Shape{m, config_.width});
  const TensorView qkv = arena.take(DType::kF32, Shape{m, stride});
  const TensorView q = arena.take(DType::kF32, Shape{m, q_width});
  const TensorView k = arena.take(DType::kF32, Shape{m, kv_width});
  const TensorView mixed = arena.take(DType::kF32, Shape{m, q_width});

  show_normed(x, weights.attention_norm, layer, LayerProduct::kQkv, normed, taps);
  input_product(x, weights.attention_norm, weights.qkv, weights.qkv_bias, normed, qkv);
  if (config_.head_norms) {
    ops::head_norm(*backend_, qkv, weights.head_scale.view(), weights.head_shift.view(),
                   kHeadNormEps);
  }
  const TensorView q_heads = heads_of(q, config_.heads);
  const std::span<const std::int64_t> slots = slots_of(chunk, layer, cache);
  const bool windowed = config_.is_windowed(layer);
  ops::qkv_rope(*backend_, {.qkv = qkv,
                            .q_norm = config_.qk_norm ? weights.q_norm.view() : ConstTensorView{},
                            .k_norm = config_.qk_norm ? weights.k_norm.view() : ConstTensorView{},
                            .eps = config_.head_eps(),
                            .cos = windowed ? chunk.window_cos : chunk.cos,
                            .sin = windowed ? chunk.window_sin : chunk.sin,
                            .pairing = rope_.pairing,
                            .slots = slots,
                            .identity = chunk.identity,
                            .q = q_heads,
                            .k = heads_of(k, config_.kv_heads),
                            .keys = cache.key_slots(layer),
                            .values = cache.value_slots(layer)});
  if (taps.observer != nullptr) taps.observer->queries(layer, chunk.first, q_heads);
  ops::attention(*backend_, {.q = q_heads,
                             .out = heads_of(mixed, config_.heads),
                             .segments = windowed ? windowed_segments(chunk, layer, cache)
                                                  : segments_of(chunk, layer, cache),
                             .scale = config_.attention_scale()});
  show_inputs(layer, LayerProduct::kOut, mixed, taps);
  add_result(mixed, weights.out, weights.out_bias, weights.attention_result_norm, x, normed);
  arena.rewind(mark);
}

void Transformer::input_product(ConstTensorView x, const Tensor& norm, const LinearWeight& weight,
                                const Tensor& bias, TensorView scratch, TensorView out) const {
  if (config_.input_norms) {
    ops::normed_linear(*backend_, x, norm.view(), config_.norm_eps, weight, bias_view(bias),
                       scratch, out);
  } else {
    ops::linear(*backend_, x, weight, bias_view(bias), out);
  }
}

void Transformer::add_result(ConstTensorView rows, const LinearWeight& weight, const Tensor& bias,
                             const Tensor& norm, TensorView x, TensorView scratch) const {
  if (!config_.result_norms) {
    ops::linear_add(*backend_, rows, weight, bias_view(bias), x, scratch);
    return;
  }
  ops::linear(*backend_, rows, weight, bias_view(bias), scratch);
  ops::rms_norm(*backend_, scratch, norm.view(), config_.norm_eps, scratch);
  ops::add(*backend_, x, scratch, x);
}

void Transformer::show_inputs(std::int64_t layer, LayerProduct of, ConstTensorView rows,
                              const Taps& taps) {
  if (taps.observer != nullptr && taps.observer->wants_inputs()) {
    taps.observer->inputs(layer, of, rows);
  }
}

// The product norms its rows itself, and may keep them where nobody sees them.
void Transformer::show_normed(ConstTensorView x, const Tensor& norm, std::int64_t layer,
                              LayerProduct of, TensorView scratch, const Taps& taps) const {
  if (taps.observer == nullptr || !taps.observer->wants_inputs()) return;
  if (!config_.input_norms) return taps.observer->inputs(layer, of, x);
  ops::rms_norm(*backend_, x, norm.view(), config_.norm_eps, scratch);
  taps.observer->inputs(layer, of, scratch);
}

// Each head of each row by itself, in place.
void Transformer::norm_heads(TensorView heads, const Tensor& weight) const {
  heads.shape = {heads.shape[0] * heads.shape[1], heads.shape[2]};
  ops::rms_norm(*backend_, heads, weight.view(), config_.head_eps(), heads);
}

CrossContext Transformer::make_context(ConstTensorView rows, DType storage) const {
  expects(rows.shape.rank() == 2 && rows.shape[1] == config_.context_width,
          "rows are [S, context width]");
  const std::int64_t count = rows.shape[0], width = config_.kv_width();
  CrossContext out(*backend_, config_, count, storage);
  Tensor both = backend_->allocate(DType::kF32, Shape{count, 2 * width});
  Tensor keys = backend_->allocate(DType::kF32, Shape{count, width});
  std::vector<std::int64_t> identity(to_size(count));
  std::iota(identity.begin(), identity.end(), 0);
  const TensorView key_heads = heads_of(keys.view(), config_.kv_heads);
  for (std::int64_t layer = 0; layer < config_.layers; ++layer) {
    const CrossWeights& weights = nth(weights_.layers, layer).cross;
    ops::linear(*backend_, rows, weights.kv, {}, both.view());
    ops::store_rows(*backend_, both.view().f32(), 2 * width, identity, key_heads);
    if (config_.qk_norm) norm_heads(key_heads, weights.k_norm);
    ops::store_rows(*backend_, keys.view().f32(), width, identity, out.keys_out(layer));
    ops::store_rows(*backend_, both.view().f32() + width, 2 * width, identity,
                    out.values_out(layer));
  }
  backend_->synchronize();
  return out;
}

void Transformer::cross_block(const Chunk& chunk, const CrossWeights& weights, std::int64_t layer,
                              TensorView x) const {
  Arena& arena = *chunk.arena;
  const std::size_t mark = arena.used();
  const std::int64_t m = chunk.rows;
  const TensorView normed = arena.take(DType::kF32, Shape{m, config_.width});
  const TensorView q = arena.take(DType::kF32, Shape{m, config_.q_width()});
  const TensorView mixed = arena.take(DType::kF32, Shape{m, config_.q_width()});
  auto* segments = arena.take_host<AttentionSegment>(std::ssize(chunk.segments)).data();
  for (std::size_t i = 0; i < chunk.segments.size(); ++i) {
    const auto sequence = to_size(chunk.sequence_of_segment[i]);
    expects(sequence < chunk.contexts.size() && chunk.contexts[sequence] != nullptr,
            "each sequence has what it attends to");
    const CrossContext& context = *chunk.contexts[sequence];
    AttentionSegment* segment = std::construct_at(segments + i);
    segment->keys = context.keys(layer);
    segment->values = context.values(layer);
    segment->row_begin = chunk.segments[i].row_begin;
    segment->rows = chunk.segments[i].rows;
    segment->first_visible = context.rows();
    segment->causal = false;
  }
  ops::normed_linear(*backend_, x, weights.norm.view(), config_.norm_eps, weights.q, {}, normed, q);
  const TensorView q_heads = heads_of(q, config_.heads);
  if (config_.qk_norm) norm_heads(q_heads, weights.q_norm);
  ops::attention(*backend_, {.q = q_heads,
                             .out = heads_of(mixed, config_.heads),
                             .segments = {segments, chunk.segments.size()},
                             .scale = config_.attention_scale()});
  ops::linear_add(*backend_, mixed, weights.out, {}, x, normed);
  arena.rewind(mark);
}

// Where a layer caches the rows of a chunk.
std::span<const std::int64_t> Transformer::slots_of(const Chunk& chunk, std::int64_t layer,
                                                    const KvCache& cache) {
  auto* slots = chunk.arena->take_host<std::int64_t>(chunk.rows).data();
  for (std::size_t i = 0; i < chunk.cached.size(); ++i) {
    const std::int32_t sequence = chunk.sequences[i];
    slots[i] = cache.slot(sequence, chunk.cached[i] - cache.missing(layer, sequence));
  }
  return {slots, chunk.cached.size()};
}

// The chunk's segments as a layer has them cached.
std::span<const AttentionSegment> Transformer::segments_of(const Chunk& chunk, std::int64_t layer,
                                                           const KvCache& cache) {
  const std::size_t count = chunk.segments.size();
  auto* out = chunk.arena->take_host<AttentionSegment>(to_index(count)).data();
  for (std::size_t i = 0; i < count; ++i) {
    AttentionSegment* segment = std::construct_at(out + i, chunk.segments[i]);
    const std::int64_t sequence = chunk.sequence_of_segment[i];
    const std::int64_t less = cache.missing(layer, sequence);
    expects(less == 0 || segment->listed.empty(), "rows of a cut sequence stand in a line");
    segment->first_visible -= less;
    segment->keys = cache.keys(layer, sequence);
    segment->values = cache.values(layer, sequence);
  }
  return {out, count};
}

std::span<const AttentionSegment> Transformer::windowed_segments(const Chunk& chunk,
                                                                 std::int64_t layer,
                                                                 const KvCache& cache) const {
  const std::span<const AttentionSegment> whole = segments_of(chunk, layer, cache);
  auto* out = chunk.arena->take_host<AttentionSegment>(chunk.rows).data();
  std::size_t count = 0;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    const AttentionSegment& segment = whole[i];
    expects(cache.missing(layer, chunk.sequence_of_segment[i]) == 0,
            "sequences with a window are not cut");
    const std::int64_t all = std::clamp<std::int64_t>(config_.window - segment.first_visible, 0,
                                                      segment.rows);
    if (all > 0) std::construct_at(out + count++, segment)->rows = all;
    for (std::int64_t row = all; row < segment.rows; ++row) {
      const std::int64_t first = segment.first_visible + row + 1 - config_.window;
      AttentionSegment* own = std::construct_at(out + count++, segment);
      own->row_begin = segment.row_begin + row;
      own->rows = 1;
      own->first_visible = config_.window - 1;
      own->keys = cache_rows_from(segment.keys, first);
      own->values = cache_rows_from(segment.values, first);
      if (segment.listed.empty()) continue;
      own->listed_base = first;
      own->listed_from = std::max<std::int64_t>(segment.listed_from - first, 0);
      own->listed = segment.listed.subspan(
          to_size(std::max<std::int64_t>(first - segment.listed_from, 0)));
    }
  }
  return {out, count};
}

void Transformer::ffn_block(const Chunk& chunk, const LayerWeights& weights, std::int64_t layer,
                            TensorView x, const Taps& taps) const {
  Arena& arena = *chunk.arena;
  const std::size_t mark = arena.used();
  const TensorView normed = arena.take(DType::kF32, Shape{chunk.rows, config_.width});
  const TensorView gate_up = arena.take(DType::kF32, Shape{chunk.rows, 2 * config_.ffn_width});
  const TensorView gated = arena.take(DType::kF32, Shape{chunk.rows, config_.ffn_width});
  const bool silu = config_.gate == GateKind::kSilu;
  show_normed(x, weights.ffn_norm, layer, LayerProduct::kGateUp, normed, taps);
  if (config_.ffn_bias || !silu || !config_.input_norms) {
    input_product(x, weights.ffn_norm, weights.gate_up, weights.gate_up_bias, normed, gate_up);
    (silu ? ops::silu_mul : ops::gelu_tanh_mul)(*backend_, gate_up, gated);
  } else {
    ops::normed_gated_linear(*backend_, x, weights.ffn_norm.view(), config_.norm_eps,
                             weights.gate_up, normed, gate_up, gated);
  }
  if (taps.observer != nullptr) taps.observer->activations(layer, chunk.first, gated);
  show_inputs(layer, LayerProduct::kDown, gated, taps);
  add_result(gated, weights.down, weights.down_bias, weights.ffn_result_norm, x, normed);
  arena.rewind(mark);
}

}  // namespace tessera
