#include "apps/runtime/verifier_watch.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "apps/runtime/cached_rows.h"
#include "engine/core/index.h"
#include "engine/ops/host_access.h"

namespace tessera {

VerifierWatch::VerifierWatch(const ModelConfig& model, Backend& backend,
                             std::vector<std::vector<std::int64_t>> images,
                             std::vector<std::int64_t> text_rows)
    : model_(model),
      backend_(backend),
      images_(std::move(images)),
      text_rows_(std::move(text_rows)),
      observer_(*this) {
  expects(model_.layers > 1 && !text_rows_.empty(), "layers to pause between, text that asks");
}

std::vector<std::int64_t> VerifierWatch::image_sizes() const {
  std::vector<std::int64_t> out;
  for (const auto& rows : images_) out.push_back(std::ssize(rows));
  return out;
}

std::vector<std::int64_t> VerifierWatch::layers() const {
  std::vector<std::int64_t> out(to_size(model_.layers - 1));
  std::iota(out.begin(), out.end(), 1);
  return out;
}

void VerifierWatch::Observer::queries(std::int64_t, std::int64_t first, ConstTensorView q) {
  VerifierWatch& own = owner_;
  if (first == 0) own.queries_.clear();
  const std::int64_t width = q.shape[1] * q.shape[2];
  const HostView host(own.backend_, q);
  for (const std::int64_t row : own.text_rows_) {
    if (row < first || row >= first + q.shape[0]) continue;
    const float* data = host.f32() + (row - first) * width;
    own.queries_[row].assign(data, data + width);
  }
}

// Softmax of each text row over all rows that it sees, head by head; the sums of all of them.
void VerifierWatch::add_layer(std::int64_t layer) {
  const std::int64_t heads = model_.heads, group = heads / model_.kv_heads, hd = model_.head_dim;
  const std::int64_t width = model_.kv_heads * hd;
  std::vector<std::int64_t> all_rows(to_size(rows_));
  std::iota(all_rows.begin(), all_rows.end(), 0);
  const std::vector<float> host = cached_rows(backend_, cache_->keys(layer, sequence_), all_rows);
  const float scale = 1.0f / std::sqrt(to_float(hd));
  const auto asked = std::ssize(text_rows_);
  std::vector<std::vector<double>> of_head(to_size(heads));
  backend_.threads().parallel_for(heads, 1, [&](std::int64_t begin, std::int64_t end, int) {
    std::vector<float> weights(to_size(rows_));
    for (std::int64_t head = begin; head < end; ++head) {
      std::vector<double>& sums = nth(of_head, head);
      sums.assign(to_size(rows_), 0.0);
      for (std::int64_t i = 0; i < asked; ++i) {
        const std::int64_t row = nth(text_rows_, i);
        const float* q = queries_.at(row).data() + head * hd;
        float highest = -HUGE_VALF;
        for (std::int64_t j = 0; j <= row; ++j) {
          const float* k = host.data() + j * width + head / group * hd;
          const float product = std::inner_product(q, q + hd, k, 0.0f) * scale;
          nth(weights, j) = product;
          highest = std::max(highest, product);
        }
        double all = 0;
        for (std::int64_t j = 0; j <= row; ++j) {
          float& weight = nth(weights, j);
          all += (weight = std::exp(weight - highest));
        }
        for (std::int64_t j = 0; j <= row; ++j) {
          const auto at = to_size(j);
          sums[at] += weights[at] / all;
        }
      }
    }
  });
  sums_.resize(to_size(rows_), 0.0);
  for (const std::vector<double>& sums : of_head) {
    for (std::size_t j = 0; j < sums_.size(); ++j) sums_[j] += sums[j];
  }
}

std::vector<std::int64_t> VerifierWatch::keep(const PromptPause& pause) {
  cache_ = pause.cache;
  sequence_ = pause.sequence;
  rows_ = std::ssize(pause.rows);
  add_layer(pause.layer - 1);
  std::vector<std::int64_t> all(pause.rows.size());
  std::iota(all.begin(), all.end(), 0);
  return all;
}

std::vector<std::vector<float>> VerifierWatch::take_scores() {
  if (cache_ == nullptr) return {};
  add_layer(model_.layers - 1);  // no pause stands after the last one
  const auto count = to_double(model_.layers * model_.heads) * to_double(text_rows_.size());
  std::vector<std::vector<float>> out;
  for (const std::vector<std::int64_t>& rows : images_) {
    std::vector<float>& own = out.emplace_back();
    for (const std::int64_t row : rows) {
      own.push_back(to_float(nth(sums_, row) / count));
    }
  }
  cache_ = nullptr;
  queries_.clear();
  return out;
}

}  // namespace tessera
