#include "apps/runtime/llm_pruning.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <numeric>
#include <set>

#include "apps/runtime/cached_rows.h"
#include "engine/core/index.h"
#include "engine/ops/host_access.h"
#include "vision/pruning/corematching.h"

namespace tessera {

namespace {

constexpr double kCoreShare = 0.2;  // rho of CoreMatching: of a row's positive activations

}  // namespace

struct LlmPruning::Served {
  std::deque<std::vector<float>> values;
  std::deque<std::vector<std::uint64_t>> bits;
  std::vector<Signal> signals;
};

LlmPruning::LlmPruning(const ModelConfig& model, Backend& backend,
                       std::vector<PlacedImage> images, std::vector<std::int64_t> text_rows,
                       std::vector<std::array<std::int64_t, 3>> places)
    : model_(model),
      backend_(backend),
      images_(std::move(images)),
      text_rows_(std::move(text_rows)),
      places_(std::move(places)),
      observer_(*this) {
  std::set<std::int64_t> layers;
  for (const PlacedImage& image : images_) {
    expects(image.rows.size() == to_size(image.block.count()), "a row a token");
    if (image.session == nullptr) continue;
    for (const Hook& hook : image.session->hooks()) {
      if (hook.point == HookPoint::kBeforeLlm) layers.insert(hook.layer);
    }
  }
  layers_.assign(layers.begin(), layers.end());
  for (const std::int64_t row : text_rows_) {
    const auto& place = nth(places_, row);
    text_positions_.push_back({narrow<std::int32_t>(place[0]), narrow<std::int32_t>(place[1]),
                               narrow<std::int32_t>(place[2])});
  }
  left_.resize(places_.size());
  std::iota(left_.begin(), left_.end(), 0);
}

bool LlmPruning::before_cut(std::int64_t layer) const {
  return std::binary_search(layers_.begin(), layers_.end(), layer + 1);
}

// Whether some image's method will ask for it after this layer.
bool LlmPruning::wants(SignalKind kind, std::int64_t layer) const {
  const Hook hook{HookPoint::kBeforeLlm, narrow<int>(layer + 1)};
  for (const PlacedImage& image : images_) {
    if (image.session == nullptr || !image.session->asks(hook)) continue;
    for (const SignalNeed& need : image.session->needs(hook)) {
      if (need.kind == kind) return true;
    }
  }
  return false;
}

void LlmPruning::Observer::queries(std::int64_t layer, std::int64_t first, ConstTensorView q) {
  LlmPruning& own = owner_;
  if (!own.before_cut(layer)) return;
  if (first == 0) own.queries_.clear();
  const std::int64_t rows = q.shape[0], width = q.shape[1] * q.shape[2];
  const HostView host(own.backend_, q);
  const float* data = host.f32();
  for (std::int64_t i = 0; i < rows; ++i) {
    const std::int64_t at = first + i;
    const std::int64_t row = nth(own.left_, at);
    const bool last = at + 1 == std::ssize(own.left_);
    if (!last && !std::binary_search(own.text_rows_.begin(), own.text_rows_.end(), row)) continue;
    own.queries_[row].assign(data + i * width, data + (i + 1) * width);
  }
}

void LlmPruning::Observer::activations(std::int64_t layer, std::int64_t first,
                                       ConstTensorView gated) {
  LlmPruning& own = owner_;
  if (!own.before_cut(layer) || !own.wants(SignalKind::kCoreNeurons, layer)) return;
  if (first == 0) own.neurons_.clear();
  const std::int64_t rows = gated.shape[0], width = gated.shape[1];
  own.neuron_bits_ = width;
  const HostView host(own.backend_, gated);
  for (std::int64_t i = 0; i < rows; ++i) {
    std::vector<std::uint64_t> bits(to_size((width + 63) / 64));
    core_neurons({host.f32() + i * width, to_size(width)}, kCoreShare, bits, own.scratch_);
    own.neurons_[nth(own.left_, first + i)] = std::move(bits);
  }
}

// Softmax weights over all keys that a row sees, of which the image's columns are handed over.
void LlmPruning::attention_rows(const SignalNeed& need, const PromptPause& pause,
                                const std::vector<std::int64_t>& columns, Served& served) const {
  std::vector<std::int64_t> asking;
  if (need.rows == RowChoice::kLast) {
    asking = {pause.rows.back()};
  } else if (need.rows == RowChoice::kAllText) {
    asking = text_rows_;
  } else {
    for (const std::int64_t i : need.listed_rows) {
      asking.push_back(nth(text_rows_, i));
    }
  }
  const std::int64_t heads = model_.heads, group = heads / model_.kv_heads, hd = model_.head_dim;
  const auto count = std::ssize(pause.rows);
  std::vector<std::int64_t> all(pause.rows.size());
  std::iota(all.begin(), all.end(), 0);
  const std::vector<float> keys =
      cached_rows(backend_, pause.cache->keys(pause.layer - 1, pause.sequence), all);
  const float scale = 1.0f / std::sqrt(to_float(hd));
  const auto asked = std::ssize(asking);
  const auto wide = std::ssize(columns);
  std::vector<float>& out = served.values.emplace_back(to_size(heads * asked * wide));
  backend_.threads().parallel_for(heads * asked, 1, [&](std::int64_t begin, std::int64_t end, int) {
    std::vector<float> weights(to_size(count));
    for (std::int64_t job = begin; job < end; ++job) {
      const std::int64_t head = job / asked, row = nth(asking, job % asked);
      const float* q = queries_.at(row).data() + head * hd;
      const auto seen =
          to_size(std::upper_bound(pause.rows.begin(), pause.rows.end(), row) - pause.rows.begin());
      float highest = -HUGE_VALF;
      for (std::size_t j = 0; j < seen; ++j) {
        const float* k = keys.data() + (to_index(j) * model_.kv_heads + head / group) * hd;
        float dot_product = 0;
        for (std::int64_t d = 0; d < hd; ++d) dot_product += q[d] * k[d];
        weights[j] = dot_product * scale;
        highest = std::max(highest, weights[j]);
      }
      double sum = 0;
      for (std::size_t j = 0; j < seen; ++j) {
        sum += (weights[j] = std::exp(weights[j] - highest));
      }
      for (std::int64_t c = 0; c < wide; ++c) {
        const auto column = to_size(nth(columns, c));
        nth(out, job * wide + c) = column < seen ? to_float(weights[column] / sum) : 0;
      }
    }
  });
  served.signals.push_back({.kind = need.kind,
                            .layer = need.layer,
                            .values = {out.data(), heads * asked, wide},
                            .heads = heads});
}

// `columns`: where the image's tokens are among the rows left.
void LlmPruning::serve(const PlacedImage& image, const SignalNeed& need,
                       const PromptPause& pause, const std::vector<std::int64_t>& columns,
                       Served& served) const {
  const std::int64_t layer = pause.layer - 1;
  const auto add = [&](std::vector<float> values, std::int64_t rows, std::int64_t heads) {
    std::vector<float>& kept = served.values.emplace_back(std::move(values));
    const auto size = std::ssize(kept);
    served.signals.push_back({.kind = need.kind,
                              .layer = need.layer,
                              .values = {kept.data(), rows, rows > 0 ? size / rows : 0},
                              .heads = heads});
  };
  const auto tokens = std::ssize(columns);
  const std::vector<std::int64_t> last = {std::ssize(pause.rows) - 1};
  switch (need.kind) {
    case SignalKind::kAttentionRows:
      return attention_rows(need, pause, columns, served);
    case SignalKind::kLastQuery:
      return add(queries_.at(pause.rows.back()), model_.heads, model_.heads);
    case SignalKind::kLlmKeys:
      return add(cached_rows(backend_, pause.cache->keys(layer, pause.sequence), columns), tokens,
                 model_.kv_heads);
    case SignalKind::kLlmValues:
      return add(cached_rows(backend_, pause.cache->values(layer, pause.sequence), columns), tokens,
                 model_.kv_heads);
    case SignalKind::kLastValue:
      return add(cached_rows(backend_, pause.cache->values(layer, pause.sequence), last), 1,
                 model_.kv_heads);
    case SignalKind::kCoreNeurons:
    case SignalKind::kTextCoreNeurons: {
      const bool text = need.kind == SignalKind::kTextCoreNeurons;
      std::vector<std::uint64_t>& bits = served.bits.emplace_back();
      const std::vector<std::int64_t>& rows = text ? text_rows_ : image.rows;
      for (const std::int64_t row : rows) {
        const auto& own = neurons_.at(row);
        bits.insert(bits.end(), own.begin(), own.end());
      }
      served.signals.push_back({.kind = need.kind,
                                .layer = need.layer,
                                .bits = {bits.data(), std::ssize(rows), neuron_bits_}});
      return;
    }
    default:
      expects(false, "a signal of the language model");
  }
}

std::vector<std::int64_t> LlmPruning::keep(const PromptPause& pause) {
  const Hook hook{HookPoint::kBeforeLlm, narrow<int>(pause.layer)};
  std::set<std::int64_t> gone;  // rows of the prompt
  for (PlacedImage& image : images_) {
    if (image.session == nullptr || !image.session->asks(hook)) continue;
    std::vector<std::int64_t> columns;
    for (const std::int64_t row : image.rows) {
      const auto at = std::lower_bound(pause.rows.begin(), pause.rows.end(), row);
      expects(at != pause.rows.end() && *at == row, "a token that is left has a row");
      columns.push_back(at - pause.rows.begin());
    }
    Served served;
    for (const SignalNeed& need : image.session->needs(hook)) {
      serve(image, need, pause, columns, served);
    }
    const PrunePlan plan =
        image.session->select(hook, image.block, served.signals, text_positions_);
    expects(plan.merges.empty(), "nothing merges inside the language model");
    std::set<std::int64_t> kept;
    std::vector<std::int64_t> rows;
    for (const TokenIndex token : plan.kept) {
      rows.push_back(nth(image.rows, token));
      kept.insert(rows.back());
    }
    for (const std::int64_t row : image.rows) {
      if (!kept.contains(row)) gone.insert(row);
    }
    image.block = apply(plan, image.block, {}).block;
    image.rows = std::move(rows);
  }
  std::vector<std::int64_t> out;
  left_.clear();
  for (std::size_t i = 0; i < pause.rows.size(); ++i) {
    if (gone.contains(pause.rows[i])) continue;
    out.push_back(to_index(i));
    left_.push_back(pause.rows[i]);
  }
  return out;
}

std::vector<VisualBlock> LlmPruning::blocks() const {
  std::vector<VisualBlock> out;
  for (const PlacedImage& image : images_) out.push_back(image.block);
  return out;
}

}  // namespace tessera
