// A head's bias depends on key - query alone: one line of 2 T - 1 numbers holds it, and each query
// sees its own T of them as the bias of its keys.
#include "engine/model/text_encoder.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>

#include "engine/core/index.h"
#include "engine/core/storage.h"
#include "engine/nn/pass_views.h"
#include "engine/ops/ops.h"
#include "engine/ops/relu.h"

namespace tessera {

// Half of a direction's buckets hold one distance each; the others grow by equal factors.
std::int64_t distance_bucket(const TextEncoderConfig& config, std::int64_t distance) {
  const std::int64_t of_direction = config.buckets / 2, exact = of_direction / 2;
  const std::int64_t first = distance > 0 ? of_direction : 0, away = std::abs(distance);
  if (away < exact) return first + away;
  // Rounded to f32 where the reference rounds.
  const float ratio = std::log(to_float(away) / to_float(exact));
  const double whole = std::log(to_double(config.max_distance) / to_double(exact));
  const float grown = ratio / to_float(whole) * to_float(of_direction - exact);
  return first + std::min(exact + truncate<std::int64_t>(grown), of_direction - 1);
}

struct TextEncoder::Pass {
  Arena arena;
  std::int64_t rows = 0;
  std::vector<std::int64_t> identity;  // 0 ... rows - 1
  Tensor bias;                         // [H, 2 rows - 1]
  TensorView x;                        // [rows, D]
};

TextEncoder::TextEncoder(Backend& backend, const TextEncoderConfig& config,
                         TextEncoderWeights weights)
    : backend_(&backend), config_(config), weights_(std::move(weights)) {
  expects(std::ssize(weights_.layers) == config.layers && config.layers > 0,
          "weights for every layer");
  expects(std::ssize(weights_.distance_bias) == config.buckets * config.heads,
          "a number for every bucket and head");
  expects(
      config.buckets >= 4 && config.buckets % 4 == 0 && config.max_distance > config.buckets / 4,
      "some distances have a bucket of their own, others share one");
}

std::size_t TextEncoder::weight_bytes(const TextEncoderConfig& config, const Backend& backend,
                                      DType storage) {
  const std::int64_t up = (config.gated ? 2 : 1) * config.ffn_width;
  const std::size_t norm = matrix_bytes(1, config.width);
  const std::size_t layer =
      2 * norm + backend.packed_linear_bytes(3 * config.inner_width(), config.width, storage) +
      backend.packed_linear_bytes(config.width, config.inner_width(), storage) +
      backend.packed_linear_bytes(up, config.width, storage) +
      backend.packed_linear_bytes(config.width, config.ffn_width, storage);
  const std::size_t table = to_size(config.vocabulary * config.width) * dtype_size(beside(storage));
  return to_size(config.layers) * layer + norm + table;
}

std::size_t TextEncoder::scratch_bytes(const TextEncoderConfig& config, std::int64_t rows) {
  const std::size_t attention =
      matrix_bytes(rows, 4 * config.inner_width()) + 3 * matrix_bytes(rows, config.inner_width());
  const std::size_t ffn = matrix_bytes(rows, (config.gated ? 3 : 1) * config.ffn_width);
  return 3 * matrix_bytes(rows, config.width) + matrix_bytes(config.heads, 2 * rows - 1) +
         std::max(attention, ffn) + 16 * padded_bytes(1);
}

Tensor TextEncoder::bias_of(std::int64_t rows) const {
  const std::int64_t line = 2 * rows - 1;
  Tensor host = Tensor::host(DType::kF32, {config_.heads, line});
  for (std::int64_t i = 0; i < line; ++i) {
    const std::int64_t bucket = distance_bucket(config_, i - (rows - 1));
    for (std::int64_t head = 0; head < config_.heads; ++head) {
      host.f32()[head * line + i] = nth(weights_.distance_bias, bucket * config_.heads + head);
    }
  }
  Tensor out = backend_->allocate(DType::kF32, host.shape());
  backend_->upload(host.view(), out.view());
  backend_->synchronize();  // before the host's goes
  return out;
}

Tensor TextEncoder::encode(std::span<const std::int32_t> ids) const {
  const auto rows = std::ssize(ids);
  expects(rows > 0, "there is a token");
  backend_->reserve_scratch(
      backend_->attention_scratch_bytes(rows, config_.heads, config_.head_dim));
  Pass pass;
  pass.arena = make_arena(*backend_, scratch_bytes(config_, rows));
  pass.rows = rows;
  pass.identity.resize(ids.size());
  std::iota(pass.identity.begin(), pass.identity.end(), 0);
  pass.bias = bias_of(rows);
  pass.x = pass.arena.take(DType::kF32, Shape{rows, config_.width});
  ops::embedding(*backend_, weights_.table.view(), ids, pass.x);
  for (const TextEncoderLayer& layer : weights_.layers) {
    attention_block(layer, pass);
    ffn_block(layer, pass);
  }
  Tensor out = backend_->allocate(DType::kF32, pass.x.shape);
  ops::rms_norm(*backend_, pass.x, weights_.final_norm.view(), config_.norm_eps, out.view());
  backend_->synchronize();  // before the arena goes
  return out;
}

void TextEncoder::attention_block(const TextEncoderLayer& layer, Pass& pass) const {
  Arena& arena = pass.arena;
  const std::size_t mark = arena.used();
  const std::int64_t rows = pass.rows, inner = config_.inner_width(), dim = config_.head_dim;
  const TensorView normed = arena.take(DType::kF32, Shape{rows, config_.width});
  const TensorView qkv = arena.take(DType::kF32, Shape{rows, 3 * inner});
  const TensorView mixed = arena.take(DType::kF32, Shape{rows, inner});
  const Shape by_head{rows, config_.heads, dim};
  const auto heads = [&] { return arena.take(DType::kF32, by_head); };
  const TensorView q = heads(), k = heads(), v = heads();
  ops::normed_linear(*backend_, pass.x, layer.attention_norm.view(), config_.norm_eps, layer.qkv,
                     {}, normed, qkv);
  for (const auto& [to, part] : {std::pair(q, 0), std::pair(k, 1), std::pair(v, 2)}) {
    ops::store_rows(*backend_, qkv.f32() + part * inner, 3 * inner, pass.identity, to);
  }
  const AttentionSegment segment{.keys = k,
                                 .values = v,
                                 .rows = rows,
                                 .first_visible = rows,
                                 .causal = false,
                                 .key_bias = pass.bias.view(),
                                 .bias_first = rows - 1,
                                 .bias_row_step = -1,
                                 .bias_head_step = 2 * rows - 1};
  ops::attention(*backend_, {.q = q,
                             .out = {DType::kF32, by_head, mixed.data, mixed.device},
                             .segments = {&segment, 1},
                             .scale = 1.0f});
  ops::linear_add(*backend_, mixed, layer.out, {}, pass.x, normed);
  arena.rewind(mark);
}

void TextEncoder::ffn_block(const TextEncoderLayer& layer, Pass& pass) const {
  Arena& arena = pass.arena;
  const std::size_t mark = arena.used();
  const TensorView normed = arena.take(DType::kF32, Shape{pass.rows, config_.width});
  const TensorView up = arena.take(DType::kF32, Shape{pass.rows, layer.up.n});
  ops::normed_linear(*backend_, pass.x, layer.ffn_norm.view(), config_.norm_eps, layer.up, {},
                     normed, up);
  if (config_.gated) {
    const TensorView gated = arena.take(DType::kF32, Shape{pass.rows, config_.ffn_width});
    ops::gelu_tanh_mul(*backend_, up, gated);
    ops::linear_add(*backend_, gated, layer.down, {}, pass.x, normed);
  } else {
    ops::relu(*backend_, up, up);
    ops::linear_add(*backend_, up, layer.down, {}, pass.x, normed);
  }
  arena.rewind(mark);
}

}  // namespace tessera
