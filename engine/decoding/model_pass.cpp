#include "engine/decoding/model_pass.h"

#include <algorithm>
#include <atomic>
#include <numeric>

#include "engine/core/index.h"
#include "engine/model/transformer.h"

namespace tessera {

namespace {

// Entries of all lines of one pass: themselves, and where lines branch the rows that one of them
// may see next to those in order.
std::size_t max_seen(const ModelPass::Limits& limits) {
  const std::int64_t next_to = limits.branch_rows * limits.branch_seen * limits.sequences;
  return to_size(ModelPass::max_rows(limits) + next_to);
}

// Recorded passes keep their host arrays; one with more of them is busy enough without.
constexpr std::int64_t kMaxArrayBytes = std::int64_t{512} << 10;

bool records(const Backend& backend) { return backend.memory().has_value(); }

// Rows of one pass, those included that are added to it.
std::int64_t padded_rows(const ModelPass::Limits& limits, const Backend& backend) {
  const std::int64_t rows = ModelPass::max_rows(limits);
  if (!records(backend)) return rows;
  return std::max(rows, limits.token_rows + limits.sequences * max_padding(limits.token_rows));
}

std::int64_t padded_logit_rows(const ModelPass::Limits& limits, const Backend& backend) {
  if (!records(backend)) return limits.logit_rows;
  const std::int64_t window = (limits.logit_rows + limits.sequences - 1) / limits.sequences;
  return std::max(limits.logit_rows, limits.sequences * row_bucket(window));
}

KvCacheShape cache_shape(const ModelConfig& model, const Backend& backend,
                         const ModelPass::Limits& limits) {
  const std::int64_t added = records(backend) ? max_padding(limits.token_rows) : 0;
  return {.layers = model.layers,
          .kv_heads = model.kv_heads,
          .head_dim = model.head_dim,
          .capacity = limits.capacity + limits.branch_rows + added,
          .sequences = limits.sequences,
          .dtype = limits.kv};
}

// FNV-1a over words.
std::uint64_t mixed_in(std::uint64_t key, std::int64_t word) {
  return (key ^ low_bits<std::uint64_t>(word)) * 0x100000001b3u;
}

std::uint64_t next_number() {
  static std::atomic<std::uint64_t> last = 0;
  return ++last;
}

}  // namespace

std::int64_t ModelPass::max_rows(const Limits& limits) {
  return limits.mixed ? limits.token_rows + limits.prompt_rows
                      : std::max(limits.token_rows, limits.prompt_rows);
}

ModelPass::ModelPass(const PassModel& model, const Limits& limits)
    : spaces_{&model},
      logit_rows_(padded_logit_rows(limits, model.backend())),
      cache_(model.backend(), cache_shape(model.sizes(), model.backend(), limits)),
      records_(records(model.backend())),
      number_(next_number()),
      mixed_(limits.mixed) {
  expects(limits.token_rows >= 1 && limits.prompt_rows >= 1, "a pass has rows");
  Backend& backend = model.backend();
  const std::int64_t most = padded_rows(limits, backend);
  scratch_rows_ = std::max(most, limits.guest_rows);
  arena_ = make_arena(backend, model.scratch_bytes(scratch_rows_));
  rows_ = backend.allocate(DType::kF32, Shape{most, model.width()});
  hidden_ = backend.allocate(DType::kF32, Shape{most, model.width()});
  logits_.push_back(make_logits(model));
  if (records_) {
    padded_hidden_ = backend.allocate(DType::kF32, Shape{most, model.width()});
    padded_.reserve(most);
    const ModelConfig& config = model.sizes();
    // Scratch that grew in a recorded pass would move under those recorded before.
    backend.reserve_scratch(backend.attention_scratch_bytes(std::min(most, backend.rows_at_once()),
                                                            config.heads, config.head_dim));
  }
  sequences_.resize(to_size(most));
  positions_.resize(to_size(most));
  places_.resize(to_size(most));
  identity_.resize(to_size(most));
  std::iota(identity_.begin(), identity_.end(), 0);
  tokens_.resize(to_size(most));
  row_spaces_.resize(to_size(most));
  paths_.reserve(to_size(most));
  seen_.reserve(max_seen(limits));
  contexts_.resize(to_size(limits.sequences), nullptr);
}

ModelPass::Logits ModelPass::make_logits(const PassModel& space) const {
  Backend& backend = space.backend();
  Logits out;
  out.rows = backend.allocate(DType::kF32, Shape{logit_rows_, space.logit_ids()});
  if (backend.device().kind != DeviceKind::kCpu) {
    out.host = backend.allocate_host(DType::kF32, out.rows.shape());
  }
  return out;
}

std::size_t ModelPass::add_space(const PassModel& space) {
  expects(
      space.transformer_body() != nullptr && space.transformer_body() == model().transformer_body(),
      "spaces share a body");
  logits_.push_back(make_logits(space));
  spaces_.push_back(&space);
  std::size_t bytes = 0;
  for (const PassModel* const one : spaces_) {
    bytes = std::max(bytes, one->scratch_bytes(scratch_rows_));
  }
  arena_ = make_arena(space.backend(), bytes);
  return spaces_.size() - 1;
}

std::size_t ModelPass::cache_bytes(const ModelConfig& model, const Backend& backend,
                                   const Limits& limits) {
  return cache_shape(model, backend, limits).bytes();
}

std::size_t ModelPass::bytes(const ModelConfig& model, std::int64_t logit_ids,
                             const Backend& backend, const Limits& limits) {
  const std::int64_t rows = std::max(max_rows(limits), limits.guest_rows);
  return cache_bytes(model, backend, limits) +
         buffer_bytes(model, logit_ids, Transformer::scratch_bytes(model, rows, backend), backend,
                      limits);
}

std::size_t ModelPass::buffer_bytes(const ModelConfig& model, std::int64_t logit_ids,
                                    std::size_t scratch, const Backend& backend,
                                    const Limits& limits) {
  const std::int64_t rows = padded_rows(limits, backend);
  const std::int64_t matrices = records(backend) ? 3 : 2;
  const std::int64_t floats =
      matrices * rows * model.width + padded_logit_rows(limits, backend) * logit_ids;
  const auto grown = to_size(rows - max_rows(limits));
  return scratch + scratch / to_size(max_rows(limits)) * grown + to_size(floats) * sizeof(float) +
         max_seen(limits) * sizeof(std::int32_t) +
         backend.attention_scratch_bytes(std::min(rows, backend.rows_at_once()), model.heads,
                                         model.head_dim);
}

TensorView ModelPass::rows_of(Tensor& matrix, std::int64_t begin, std::int64_t rows) {
  const std::int64_t width = matrix.shape()[1];
  TensorView view = matrix.view();
  return {view.dtype, Shape{rows, width}, view.f32() + begin * width, view.device};
}

void ModelPass::keep_hidden(std::span<const std::int64_t> layers) {
  const std::int64_t all = model().sizes().layers;
  kept_layers_.assign(layers.begin(), layers.end());
  kept_hidden_.clear();
  layer_taps_.assign(layers.empty() ? 0 : to_size(all), TensorView{});
  for (const std::int64_t layer : layers) {
    expects(layer >= 0 && layer <= all, "a layer of the model");
    kept_hidden_.emplace_back();
    if (layer < all) kept_hidden_.back() = model().backend().allocate(DType::kF32, rows_.shape());
  }
}

ConstTensorView ModelPass::kept_hidden(std::size_t i) {
  const bool last = kept_layers_[i] == model().sizes().layers;
  return rows_of(last ? hidden_ : kept_hidden_[i], 0, count_);
}

Taps ModelPass::kept_taps() {
  for (std::size_t i = 0; i < kept_layers_.size(); ++i) {
    if (kept_hidden_[i].empty()) continue;
    nth(layer_taps_, kept_layers_[i]) = rows_of(kept_hidden_[i], 0, count_);
  }
  return {layer_taps_};
}

// The rows of a model of blocks are in lines, whoever asks.
void ModelPass::begin() {
  count_ = token_count_ = 0;
  recorded_ = pads_ = false;
  one_space_ = true;
  lines_branch_ = model().reading().block > 0;
  paths_.clear();
  seen_.clear();
  arena_.reset();
}

std::int64_t ModelPass::noted(std::int32_t sequence) const {
  std::int64_t rows = 0;
  for (std::int64_t i = count_; i > 0 && nth(sequences_, i - 1) == sequence; --i) {
    ++rows;
  }
  return rows;
}

void ModelPass::note(std::int32_t sequence, std::int64_t position, std::int64_t count) {
  expects(count_ + count <= std::ssize(sequences_), "rows fit the pass");
  for (std::int64_t j = 0; j < count; ++j) {
    nth(sequences_, count_ + j) = sequence;
    nth(positions_, count_ + j) = position + j;
    nth(places_, count_ + j).fill(position + j);
  }
  count_ += count;
}

void ModelPass::add_prompt(std::int32_t sequence, std::span<const std::int32_t> ids) {
  expects(mixed_ || token_count_ == 0, "a pass of prompts");
  const auto length = std::ssize(ids);
  model().embed_prompt(ids, rows_of(rows_, count_, length));
  note_prompt_path(sequence, length);
  note(sequence, cache_.length(sequence), length);
}

void ModelPass::note_prompt_path(std::int32_t sequence, std::int64_t count) {
  expects(noted(sequence) == 0, "a part of a prompt stands alone in a pass");
  paths_.push_back({count, cache_.length(sequence), {}});
}

void ModelPass::add_prompt_rows(std::int32_t sequence, ConstTensorView rows,
                                std::span<const std::array<std::int64_t, 3>> places) {
  expects(mixed_ || token_count_ == 0, "a pass of prompts");
  const std::int64_t count = rows.shape[0], first = count_;
  expects(std::ssize(places) == count, "a place a row");
  note_prompt_path(sequence, count);
  note(sequence, 0, count);
  for (std::size_t j = 0; j < places.size(); ++j) {
    places_[to_size(first) + j] = places[j];
    positions_[to_size(first) + j] = places[j][0];
  }
  const TensorView to = rows_of(rows_, first, count);
  ops::store_rows(model().backend(), rows.f32(), model().width(),
                  std::span(identity_).first(places.size()),
                  {to.dtype, Shape{count, 1, model().width()}, to.data, to.device});
}

void ModelPass::add_tokens(std::int32_t sequence, std::span<const std::int32_t> tokens) {
  const std::int64_t cached = cache_.length(sequence);
  add_line(sequence, {cached, cached, {}, tokens});
}

void ModelPass::add_line(std::int32_t sequence, const Line& line) {
  expects(count_ == token_count_, "tokens stand before prompts");
  const std::int64_t ahead = noted(sequence), cached = cache_.length(sequence);
  const auto count = std::ssize(line.tokens);
  lines_branch_ = lines_branch_ || !line.seen.empty() || ahead > 0 || line.shared != cached;
  std::copy(line.tokens.begin(), line.tokens.end(), tokens_.begin() + count_);
  std::fill_n(row_spaces_.begin() + count_, line.tokens.size(), line.space);
  one_space_ = one_space_ && line.space == 0;
  note(sequence, line.position, count);
  token_count_ = count_;
  const std::size_t first = seen_.size();
  expects(first + line.seen.size() + line.tokens.size() <= seen_.capacity(), "lines fit the pass");
  for (const std::int32_t row : line.seen) {
    expects(row < cached + ahead, "a line stands after rows that are there");
    seen_.push_back(row);
  }
  for (std::int64_t j = 0; j < count; ++j) {
    seen_.push_back(narrow<std::int32_t>(cached + ahead + j));
  }
  paths_.push_back({count, line.shared, std::span(seen_).subspan(first)});
}

TokenRows ModelPass::noted_rows() const {
  const auto count = to_size(count_);
  return {std::span(tokens_).first(count), std::span(sequences_).first(count),
          std::span(positions_).first(count), std::span(places_).first(count)};
}

void ModelPass::plan(const Taps& taps) {
  recorded_ = pads_ = false;
  const bool plain = one_space_ && model().reading().block == 0 && taps.hidden_states.empty() &&
                     taps.observer == nullptr &&
                     std::all_of(contexts_.begin(), contexts_.end(),
                                 [](const CrossContext* context) { return context == nullptr; });
  const TokenRows rows = noted_rows();
  if (!records_ || !plain || token_count_ < count_ || count_ == 0 ||
      !PaddedRows::fits(rows.sequences)) {
    return;
  }
  if (!lines_branch_) padded_.pad(rows);
  const std::int64_t wide = lines_branch_ ? count_ : padded_.count();
  const std::size_t of_layer = to_size(wide) * 3 * sizeof(std::int64_t) +
                               paths_.size() * sizeof(AttentionSegment) +
                               seen_.size() * sizeof(std::int32_t);
  const auto layers = to_size(model().sizes().layers);
  if (layers * of_layer > to_size(kMaxArrayBytes)) return;
  pads_ = !lines_branch_;
  shape_ = key_of_shape();
  recorded_ = !lines_branch_ || ran_lately(shape_);
}

// All that shapes the pass: rows of each sequence, lines and how much they see.
std::uint64_t ModelPass::key_of_shape() const {
  std::uint64_t key = mixed_in(0xcbf29ce484222325u, to_index(number_));
  key = mixed_in(key, lines_branch_);
  const TokenRows rows = pads_ ? padded_.rows() : noted_rows();
  for (const std::int32_t sequence : rows.sequences) key = mixed_in(key, sequence);
  if (!lines_branch_) return key;
  for (const RowPath& path : paths_) {
    key = mixed_in(mixed_in(key, path.rows), std::ssize(path.seen));
  }
  return key;
}

std::uint64_t ModelPass::key_of(Part part, std::int64_t to) const {
  return mixed_in(mixed_in(shape_, static_cast<std::int64_t>(part)), to);
}

bool ModelPass::ran_lately(std::uint64_t shape) {
  if (std::find(lately_.begin(), lately_.end(), shape) != lately_.end()) return true;
  lately_[next_lately_++ % lately_.size()] = shape;
  return false;
}

// Each token by the table of its space, neighbours together.
void ModelPass::embed_rows(const TokenRows& rows, std::int64_t tokens) {
  arena_.reset();
  for (std::int64_t at = 0, end = tokens; at < tokens; at = end) {
    const std::size_t space = one_space_ ? 0 : nth(row_spaces_, at);
    for (end = one_space_ ? tokens : at + 1; end < tokens && nth(row_spaces_, end) == space;
         ++end) {
    }
    spaces_[space]->embed_tokens(rows.tokens.subspan(to_size(at), to_size(end - at)), arena_,
                                 rows_of(rows_, at, end - at));
  }
}

void ModelPass::run_ops(const Taps& taps) {
  Backend& backend = model().backend();
  const std::int64_t wide = pads_ ? padded_.count() : count_;
  const bool gathers = pads_ && padded_.gathers();
  const TokenRows rows = pads_ ? padded_.rows() : noted_rows();
  const std::int64_t tokens = pads_ ? wide : token_count_;
  if (tokens > 0) embed_rows(rows, tokens);
  const std::span<const RowPath> paths =
      lines_branch_ ? std::span<const RowPath>(paths_) : std::span<const RowPath>();
  model().forward({.rows = rows_of(rows_, 0, wide),
                   .sequences = rows.sequences,
                   .positions = rows.positions,
                   .places = rows.places,
                   .paths = paths,
                   .contexts = contexts_},
                  cache_, arena_, rows_of(gathers ? padded_hidden_ : hidden_, 0, wide), taps);
  if (gathers) {
    ops::embedding(backend, rows_of(padded_hidden_, 0, wide), padded_.real(),
                   rows_of(hidden_, 0, wide));
  }
  if (pads_) padded_.drop_added(cache_);
}

void ModelPass::run_layers(const Taps& asked) {
  const Taps taps = asked.hidden_states.empty() && asked.observer == nullptr ? kept_taps() : asked;
  plan(taps);
  std::optional<RecordedPass> recorded;
  if (recorded_) recorded.emplace(model().backend(), key_of(Part::kLayers, 0));
  run_ops(taps);
}

// A recorded head is that of all rows, with those that were added.
void ModelPass::run_head(std::int64_t first, std::int64_t rows, std::int64_t to,
                         std::size_t space) {
  const std::int64_t wide = pads_ ? padded_.count() : count_;
  const bool all = recorded_ && space == 0 && first == 0 && rows == count_ &&
                   to + wide <= logits_[space].rows.shape()[0];
  std::optional<RecordedPass> recorded;
  if (all) recorded.emplace(model().backend(), key_of(Part::kHead, to));
  head_ops(first, all ? wide : rows, to, space);
  logits_[space].end = std::max(logits_[space].end, to + rows);
}

void ModelPass::head_ops(std::int64_t first, std::int64_t rows, std::int64_t to,
                         std::size_t space) {
  spaces_[space]->logits(rows_of(hidden_, first, rows), arena_,
                         rows_of(logits_[space].rows, to, rows));
}

void ModelPass::run_head_of(ConstTensorView hidden, std::int64_t to) {
  model().logits(hidden, arena_, rows_of(logits_[0].rows, to, 1));
  logits_[0].end = std::max(logits_[0].end, to + 1);
}

void ModelPass::run() {
  const Taps taps = kept_taps();
  plan(taps);
  const std::int64_t wide = pads_ ? padded_.count() : count_;
  expects(one_space_ && wide <= logits_[0].rows.shape()[0], "the rows of a pass have logits");
  std::optional<RecordedPass> recorded;
  if (recorded_) recorded.emplace(model().backend(), key_of(Part::kBoth, 0));
  run_ops(taps);
  head_ops(0, wide, 0, 0);
  logits_[0].end = std::max(logits_[0].end, count_);
}

void ModelPass::fetch_logits(std::size_t space) {
  Backend& backend = model().backend();
  Logits& logits = logits_[space];
  logits.read = logits.rows.f32();
  if (!logits.host.empty()) {
    backend.download(rows_of(logits.rows, 0, logits.end), rows_of(logits.host, 0, logits.end));
    logits.read = logits.host.f32();
  }
  backend.synchronize();
  logits.end = 0;
}

std::span<const float> ModelPass::logits(std::int64_t row, std::size_t space) const {
  const auto ids = to_size(spaces_[space]->logit_ids());
  return {logits_[space].read + to_size(row) * ids, ids};
}

}  // namespace tessera
