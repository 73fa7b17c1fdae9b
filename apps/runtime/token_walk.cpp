#include "apps/runtime/token_walk.h"

#include <numeric>

#include "engine/backend/backend.h"

namespace tessera {

TokenWalk::TokenWalk(const TokenModel& model, std::int64_t rows, DType cache)
    : model_(model),
      cache_(model.backend(), {.layers = model.sizes().layers,
                               .kv_heads = model.sizes().kv_heads,
                               .head_dim = model.sizes().head_dim,
                               .capacity = rows,
                               .sequences = 1,
                               .dtype = cache}),
      arena_(make_arena(model.backend(), model.scratch_bytes(rows) + (std::size_t{1} << 16))) {}

ConstTensorView TokenWalk::prompt(std::span<const std::int32_t> ids) {
  rows_ = model_.backend().allocate(DType::kF32, {std::ssize(ids), model_.width()});
  model_.embed_prompt(ids, rows_.view());
  return rows_.view();
}

ConstTensorView TokenWalk::tokens(std::span<const std::int32_t> ids) {
  rows_ = model_.backend().allocate(DType::kF32, {std::ssize(ids), model_.width()});
  model_.embed_tokens(ids, arena_, rows_.view());
  return rows_.view();
}

ConstTensorView TokenWalk::pass(ConstTensorView rows, std::span<const Place> places,
                                const Taps& taps) {
  const std::int64_t count = rows.shape[0];
  hidden_ = model_.backend().allocate(DType::kF32, rows.shape);
  std::vector<std::int64_t> positions(to_size(count));
  std::iota(positions.begin(), positions.end(), length());
  for (std::size_t i = 0; i < places.size(); ++i) positions[i] = places[i][0];
  const std::vector<std::int32_t> sequences(to_size(count), 0);
  model_.forward({.rows = rows, .sequences = sequences, .positions = positions, .places = places},
                 cache_, arena_, hidden_.view(), taps);
  return hidden_.view();
}

void TokenWalk::logits(ConstTensorView hidden, float* out) {
  Backend& backend = model_.backend();
  const Shape shape{hidden.shape[0], model_.logit_ids()};
  Tensor logits = backend.allocate(DType::kF32, shape);
  model_.logits(hidden, arena_, logits.view());
  backend.download(logits.view(), {DType::kF32, shape, out, Device{}});
  backend.synchronize();
}

void TokenWalk::last_logits(ConstTensorView hidden, float* out) {
  const std::int64_t last = hidden.shape[0] - 1, width = hidden.shape[1];
  logits({DType::kF32, Shape{1, width}, hidden.f32() + last * width, hidden.device}, out);
}

}  // namespace tessera
