#include "engine/decoding/model_pass.h"

#include <algorithm>
#include <numeric>

namespace tessera {

namespace {

// Entries of all lines of one pass: themselves, and where lines branch the rows that one of them
// may see beside those in order.
std::size_t most_seen(const ModelPass::Limits& limits) {
  const std::int64_t beside = limits.branch_rows * limits.branch_seen * limits.sequences;
  return static_cast<std::size_t>(ModelPass::most_rows(limits) + beside);
}

KvCacheShape cache_shape(const ModelConfig& model, const ModelPass::Limits& limits) {
  return {.layers = model.layers,
          .kv_heads = model.kv_heads,
          .head_dim = model.head_dim,
          .capacity = limits.capacity + limits.branch_rows,
          .sequences = limits.sequences,
          .dtype = limits.kv};
}

}  // namespace

std::int64_t ModelPass::most_rows(const Limits& limits) {
  return limits.mixed ? limits.token_rows + limits.prompt_rows
                      : std::max(limits.token_rows, limits.prompt_rows);
}

ModelPass::ModelPass(const TokenModel& model, const Limits& limits)
    : model_(model),
      cache_(model.backend(), cache_shape(model.transformer().config(), limits)),
      mixed_(limits.mixed) {
  expects(limits.token_rows >= 1 && limits.prompt_rows >= 1, "a pass has rows");
  Backend& backend = model.backend();
  const std::int64_t most = most_rows(limits);
  arena_ = make_arena(backend, model.scratch_bytes(std::max(most, limits.guest_rows)));
  rows_ = backend.allocate(DType::kF32, Shape{most, model.width()});
  hidden_ = backend.allocate(DType::kF32, Shape{most, model.width()});
  logits_ = backend.allocate(DType::kF32, Shape{limits.logit_rows, model.logit_ids()});
  if (backend.device().kind != DeviceKind::kCpu) {
    host_logits_ = Tensor::host(DType::kF32, logits_.shape());
  }
  sequences_.resize(static_cast<std::size_t>(most));
  positions_.resize(static_cast<std::size_t>(most));
  places_.resize(static_cast<std::size_t>(most));
  identity_.resize(static_cast<std::size_t>(most));
  std::iota(identity_.begin(), identity_.end(), 0);
  tokens_.resize(static_cast<std::size_t>(most));
  paths_.reserve(static_cast<std::size_t>(most));
  seen_.reserve(most_seen(limits));
  contexts_.resize(static_cast<std::size_t>(limits.sequences), nullptr);
}

std::size_t ModelPass::bytes(const ModelConfig& model, std::int64_t logit_ids,
                             const Backend& backend, const Limits& limits) {
  const std::int64_t rows = std::max(most_rows(limits), limits.guest_rows);
  return cache_shape(model, limits).bytes() +
         buffer_bytes(model, logit_ids, Transformer::scratch_bytes(model, rows), backend, limits);
}

std::size_t ModelPass::buffer_bytes(const ModelConfig& model, std::int64_t logit_ids,
                                    std::size_t scratch, const Backend& backend,
                                    const Limits& limits) {
  const std::int64_t rows = most_rows(limits);
  const std::int64_t floats = 2 * rows * model.width + limits.logit_rows * logit_ids;
  return scratch + static_cast<std::size_t>(floats) * sizeof(float) +
         most_seen(limits) * sizeof(std::int32_t) +
         backend.attention_scratch_bytes(std::min(rows, Transformer::kChunkRows), model.heads,
                                         model.head_dim);
}

TensorView ModelPass::rows_of(Tensor& matrix, std::int64_t begin, std::int64_t rows) {
  const std::int64_t width = matrix.shape()[1];
  TensorView view = matrix.view();
  return {view.dtype, Shape{rows, width}, view.f32() + begin * width, view.device};
}

void ModelPass::begin() {
  count_ = token_count_ = 0;
  lines_branch_ = false;
  paths_.clear();
  seen_.clear();
  arena_.reset();
}

std::int64_t ModelPass::noted(std::int32_t sequence) const {
  std::int64_t rows = 0;
  for (std::int64_t i = count_; i > 0 && sequences_[static_cast<std::size_t>(i - 1)] == sequence;
       --i) {
    ++rows;
  }
  return rows;
}

void ModelPass::note(std::int32_t sequence, std::int64_t position, std::int64_t count) {
  expects(count_ + count <= static_cast<std::int64_t>(sequences_.size()), "rows fit the pass");
  for (std::int64_t j = 0; j < count; ++j) {
    sequences_[static_cast<std::size_t>(count_ + j)] = sequence;
    positions_[static_cast<std::size_t>(count_ + j)] = position + j;
    places_[static_cast<std::size_t>(count_ + j)].fill(position + j);
  }
  count_ += count;
}

void ModelPass::add_prompt(std::int32_t sequence, std::span<const std::int32_t> ids) {
  expects(mixed_ || token_count_ == 0, "a pass of prompts");
  const auto length = static_cast<std::int64_t>(ids.size());
  model_.embed_prompt(ids, rows_of(rows_, count_, length));
  note(sequence, cache_.length(sequence), length);
}

void ModelPass::add_prompt_rows(std::int32_t sequence, ConstTensorView rows,
                                std::span<const std::array<std::int64_t, 3>> places) {
  expects(mixed_ || token_count_ == 0, "a pass of prompts");
  const std::int64_t count = rows.shape[0], first = count_;
  expects(static_cast<std::int64_t>(places.size()) == count, "a place a row");
  note(sequence, 0, count);
  for (std::size_t j = 0; j < places.size(); ++j) {
    places_[static_cast<std::size_t>(first) + j] = places[j];
    positions_[static_cast<std::size_t>(first) + j] = places[j][0];
  }
  const TensorView to = rows_of(rows_, first, count);
  ops::store_rows(model_.backend(), rows.f32(), model_.width(),
                  std::span(identity_).first(places.size()),
                  {to.dtype, Shape{count, 1, model_.width()}, to.data, to.device});
}

void ModelPass::add_tokens(std::int32_t sequence, std::span<const std::int32_t> tokens) {
  const std::int64_t cached = cache_.length(sequence);
  add_line(sequence, {cached, cached, {}, tokens});
}

void ModelPass::add_line(std::int32_t sequence, const Line& line) {
  expects(count_ == token_count_, "tokens stand before prompts");
  const std::int64_t ahead = noted(sequence), cached = cache_.length(sequence);
  const auto count = static_cast<std::int64_t>(line.tokens.size());
  lines_branch_ = lines_branch_ || !line.seen.empty() || ahead > 0 || line.shared != cached;
  std::copy(line.tokens.begin(), line.tokens.end(),
            tokens_.begin() + static_cast<std::ptrdiff_t>(count_));
  note(sequence, line.position, count);
  token_count_ = count_;
  const std::size_t first = seen_.size();
  expects(first + line.seen.size() + line.tokens.size() <= seen_.capacity(), "lines fit the pass");
  for (const std::int32_t row : line.seen) {
    expects(row < cached + ahead, "a line stands behind rows that are there");
    seen_.push_back(row);
  }
  for (std::int64_t j = 0; j < count; ++j) {
    seen_.push_back(static_cast<std::int32_t>(cached + ahead + j));
  }
  paths_.push_back({count, line.shared, std::span(seen_).subspan(first)});
}

void ModelPass::run_layers(const Taps& taps) {
  const auto total = static_cast<std::size_t>(count_);
  const TensorView in = rows_of(rows_, 0, count_);
  if (token_count_ > 0) {
    arena_.reset();
    model_.embed_tokens(std::span(tokens_).first(static_cast<std::size_t>(token_count_)), arena_,
                        rows_of(rows_, 0, token_count_));
  }
  const std::span<const RowPath> paths =
      lines_branch_ ? std::span<const RowPath>(paths_) : std::span<const RowPath>();
  model_.transformer().forward({.rows = in,
                                .sequences = std::span(sequences_).first(total),
                                .positions = std::span(positions_).first(total),
                                .places = std::span(places_).first(total),
                                .paths = paths,
                                .contexts = contexts_},
                               cache_, arena_, hidden(), taps);
}

void ModelPass::run_head(std::int64_t first, std::int64_t rows, std::int64_t to) {
  model_.logits(rows_of(hidden_, first, rows), arena_, rows_of(logits_, to, rows));
}

void ModelPass::run_head_of(ConstTensorView hidden, std::int64_t to) {
  model_.logits(hidden, arena_, rows_of(logits_, to, 1));
}

void ModelPass::run() {
  run_layers();
  run_head(0, count_, 0);
}

void ModelPass::fetch_logits() {
  Backend& backend = model_.backend();
  backend.synchronize();
  host_ = logits_.f32();
  if (host_logits_.empty()) return;
  backend.download(logits_.view(), host_logits_.view());
  backend.synchronize();
  host_ = host_logits_.f32();
}

std::span<const float> ModelPass::logits(std::int64_t row) const {
  const auto ids = static_cast<std::size_t>(model_.logit_ids());
  return {host_ + static_cast<std::size_t>(row) * ids, ids};
}

}  // namespace tessera
