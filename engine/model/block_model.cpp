#include "engine/model/block_model.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "engine/core/index.h"
#include "engine/core/storage.h"
#include "engine/nn/pass_views.h"
#include "engine/ops/ops.h"

namespace tessera {

namespace {

constexpr std::int64_t kGrowth = 4;  // width of the feed-forward layer by the model's

}  // namespace

// What the layers of a pass share.
struct BlockModel::Pass {
  std::int64_t rows = 0;
  std::span<const std::int64_t> slots, identity;  // cache rows of the tokens; 0, 1, ...
  std::span<AttentionSegment> segments;           // one a span
  std::span<const std::int32_t> sequences;        // of each span
  std::span<const std::int32_t> places;           // rows of the position table
  KvCache* cache = nullptr;
  Arena* arena = nullptr;
};

BlockModel::BlockModel(Backend& backend, const BlockModelConfig& config, BlockModelWeights weights)
    : backend_(&backend), config_(config), sizes_(config.sizes()), weights_(std::move(weights)) {
  expects(config.heads > 0 && config.width % config.heads == 0, "heads share the width");
  expects(std::ssize(weights_.layers) == config.layers, "weights for every layer");
  expects(weights_.head.weight.n == config.codes, "the head has one row a code");
  expects(weights_.position_table.shape().elements() == config.positions * config.width,
          "the position table has all positions");
}

std::size_t BlockModel::scratch_bytes(const BlockModelConfig& config, std::int64_t max_rows) {
  const std::int64_t m = max_rows, d = config.width;
  const auto segment = to_index(sizeof(AttentionSegment));
  const std::size_t shared = 3 * matrix_bytes(m, d) + 2 * matrix_bytes(m, 1, 8) +
                             2 * matrix_bytes(m, 1) + matrix_bytes(m, segment, 1);
  return shared +
         std::max(matrix_bytes(m, 3 * d) + 2 * matrix_bytes(m, d), matrix_bytes(m, kGrowth * d));
}

std::size_t BlockModel::weight_bytes(const BlockModelConfig& config, const Backend& backend,
                                     DType storage) {
  const std::int64_t d = config.width;
  const auto linear = [&](std::int64_t n, std::int64_t k) {
    return backend.packed_linear_bytes(n, k, storage) + to_size(n) * 4;
  };
  const std::size_t norm = to_size(2 * d) * 4;
  const std::size_t layer =
      2 * norm + linear(3 * d, d) + linear(d, d) + linear(kGrowth * d, d) + linear(d, kGrowth * d);
  return to_size(config.layers) * layer + norm +
         to_size((config.vocabulary + config.positions) * d) * dtype_size(beside(storage)) +
         backend.packed_linear_bytes(config.codes, d, head_storage(storage));
}

void BlockModel::embed_prompt(std::span<const std::int32_t> ids, TensorView out) const {
  std::vector<std::int32_t> rows(ids.begin(), ids.end());
  for (std::int32_t& id : rows) {
    expects(id >= 0 && id < config_.conditions, "the prompt is of the model's ids");
    id += narrow<std::int32_t>(config_.first_condition);
  }
  ops::embedding(*backend_, weights_.token_table.view(), rows, out);
}

void BlockModel::embed_tokens(std::span<const std::int32_t> ids, Arena& arena,
                              TensorView out) const {
  const std::size_t mark = arena.used();
  auto* rows = arena.take_host<std::int32_t>(std::ssize(ids)).data();
  const auto codes = narrow<std::int32_t>(config_.codes);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const bool code = ids[i] < codes;
    rows[i] = code ? narrow<std::int32_t>(config_.first_code) + ids[i] : ids[i] - codes;
  }
  ops::embedding(*backend_, weights_.token_table.view(), {rows, ids.size()}, out);
  arena.rewind(mark);
}

// Opens cache rows and finds the spans.
BlockModel::Pass BlockModel::open_pass(const ForwardBatch& batch, KvCache& cache,
                                       Arena& arena) const {
  const auto count = batch.sequences.size();
  const auto rows = to_index(count);
  auto* slots = arena.take_host<std::int64_t>(rows).data();
  auto* identity = arena.take_host<std::int64_t>(rows).data();
  auto* places = arena.take_host<std::int32_t>(rows).data();
  auto* owners = arena.take_host<std::int32_t>(rows).data();
  auto* segments = arena.take_host<AttentionSegment>(rows).data();
  for (std::size_t i = 0; i < count; ++i) {
    identity[i] = to_index(i);
    places[i] = narrow<std::int32_t>(batch.positions[i]);
    expects(places[i] >= 0 && places[i] < config_.positions,
            "the position table has these positions");
  }
  std::size_t spans = 0, path = 0, path_end = 0;
  for (std::size_t at = 0; at < count;) {
    const std::int32_t sequence = batch.sequences[at];
    std::size_t end = at;
    while (end < count && batch.sequences[end] == sequence) ++end;
    const std::int64_t cached = cache.append(sequence, batch.positions.subspan(at, end - at));
    for (std::size_t i = at; i < end; ++i) {
      slots[i] = cache.slot(sequence, cached + to_index(i - at));
    }
    for (std::size_t from = at; from < end;) {
      path_end = batch.paths.empty() ? end : from + to_size(batch.paths[path++].rows);
      expects(path_end > from && path_end <= end, "paths are of one sequence");
      AttentionSegment* segment = std::construct_at(segments + spans);
      segment->row_begin = to_index(from);
      segment->rows = to_index(path_end - from);
      segment->first_visible = cached + to_index(path_end - at);
      segment->causal = false;
      owners[spans++] = sequence;
      from = path_end;
    }
    at = end;
  }
  return {rows,
          {slots, count},
          {identity, count},
          {segments, spans},
          {owners, spans},
          {places, count},
          &cache,
          &arena};
}

void BlockModel::forward(const ForwardBatch& batch, KvCache& cache, Arena& arena, TensorView hidden,
                         const Taps& taps) const {
  const std::size_t mark = arena.used();
  const std::int64_t rows = batch.rows.shape[0];
  expects(hidden.shape == Shape({rows, config_.width}), "hidden rows are [M, D]");
  const Pass pass = open_pass(batch, cache, arena);
  const TensorView x = arena.take(DType::kF32, Shape{rows, config_.width});
  const TensorView place_rows = arena.take(DType::kF32, Shape{rows, config_.width});
  const ConstTensorView table = weights_.position_table.view();
  ops::embedding(*backend_,
                 {table.dtype, Shape{config_.positions, config_.width}, table.data, table.device},
                 pass.places, place_rows);
  ops::add(*backend_, batch.rows, place_rows, x);
  for (std::int64_t layer = 0; layer < config_.layers; ++layer) {
    const auto number = to_size(layer);
    const TensorView tap = taps.hidden_states.empty() ? TensorView{} : taps.hidden_states[number];
    if (tap.data != nullptr) {
      ops::store_rows(*backend_, x.f32(), config_.width, pass.identity, heads_of(tap, 1));
    }
    const BlockLayerWeights& weights = weights_.layers[number];
    attention_block(weights, layer, pass, x);
    ffn_block(weights, pass, x);
  }
  ops::layer_norm(*backend_, x, weights_.final_norm.view(), weights_.final_norm_bias.view(),
                  config_.norm_eps, hidden);
  arena.rewind(mark);
}

void BlockModel::attention_block(const BlockLayerWeights& weights, std::int64_t layer,
                                 const Pass& pass, TensorView x) const {
  Arena& arena = *pass.arena;
  const std::size_t mark = arena.used();
  const std::int64_t width = config_.width, stride = 3 * width;
  const TensorView normed = arena.take(DType::kF32, Shape{pass.rows, width});
  const TensorView qkv = arena.take(DType::kF32, Shape{pass.rows, stride});
  const TensorView q = arena.take(DType::kF32, Shape{pass.rows, width});
  const TensorView mixed = arena.take(DType::kF32, Shape{pass.rows, width});
  ops::layer_norm(*backend_, x, weights.attention_norm.view(), weights.attention_norm_bias.view(),
                  config_.norm_eps, normed);
  apply(*backend_, weights.qkv, normed, qkv);
  ops::store_rows(*backend_, qkv.f32(), stride, pass.identity, heads_of(q, config_.heads));
  ops::store_rows(*backend_, qkv.f32() + width, stride, pass.slots, pass.cache->key_slots(layer));
  ops::store_rows(*backend_, qkv.f32() + 2 * width, stride, pass.slots,
                  pass.cache->value_slots(layer));
  for (std::size_t span = 0; span < pass.segments.size(); ++span) {
    pass.segments[span].keys = pass.cache->keys(layer, pass.sequences[span]);
    pass.segments[span].values = pass.cache->values(layer, pass.sequences[span]);
  }
  ops::attention(*backend_, {.q = heads_of(q, config_.heads),
                             .out = heads_of(mixed, config_.heads),
                             .segments = pass.segments,
                             .scale = 1.0f / std::sqrt(to_float(config_.head_dim()))});
  apply_add(*backend_, weights.out, mixed, x, normed);
  arena.rewind(mark);
}

void BlockModel::ffn_block(const BlockLayerWeights& weights, const Pass& pass, TensorView x) const {
  Arena& arena = *pass.arena;
  const std::size_t mark = arena.used();
  const TensorView normed = arena.take(DType::kF32, Shape{pass.rows, config_.width});
  const TensorView inner = arena.take(DType::kF32, Shape{pass.rows, kGrowth * config_.width});
  ops::layer_norm(*backend_, x, weights.ffn_norm.view(), weights.ffn_norm_bias.view(),
                  config_.norm_eps, normed);
  apply(*backend_, weights.up, normed, inner);
  ops::gelu(*backend_, inner, inner);
  apply_add(*backend_, weights.down, inner, x, normed);
  arena.rewind(mark);
}

void BlockModel::logits(ConstTensorView hidden, Arena&, TensorView out) const {
  apply(*backend_, weights_.head, hidden, out);
}

}  // namespace tessera
