// Stages of the distribution over the list of ids that still stand. The arithmetic of an id is that of
// engine/core/dist_math.h; sums run in the order of engine/core/row_tree.h.
#include "engine/sampling/dist.h"

#include <algorithm>
#include <numeric>

#include "engine/core/dist_math.h"
#include "engine/core/index.h"
#include "engine/core/row_tree.h"
#include "engine/sampling/row_math.h"

namespace tessera {

std::optional<std::int64_t> first_unsound(std::span<const float> logits) {
  // Without a way out the loop runs on vectors; rows are sound as a rule.
  std::uint32_t any = 0;
  for (const float value : logits) any |= unsound(value) ? 1u : 0u;
  if (any == 0) return std::nullopt;
  return std::find_if(logits.begin(), logits.end(), unsound) - logits.begin();
}

template <typename Real>
DistributionPipeline<Real>::DistributionPipeline(const DistributionSettings& settings, std::int64_t vocabulary)
    : DistributionPipeline(settings, VocabularyGrammar::line(static_cast<std::size_t>(vocabulary), 1)) {}

template <typename Real>
DistributionPipeline<Real>::DistributionPipeline(const DistributionSettings& settings, const VocabularyGrammar& grammar)
    : settings_(settings), grammar_(grammar), codes_(grammar.codes) {
  expects(codes_ >= 1, "a vocabulary has ids");
  expects(settings.guidance >= 0 && settings.temperature >= 0 && settings.top_k >= 0 &&
              settings.top_p > 0 && settings.top_p <= 1 && settings.typical > 0 &&
              settings.typical <= 1 && settings.min_p >= 0 && settings.min_p <= 1,
          "distribution settings in range");
  support_.resize(codes_);
  logits_.resize(codes_);
  weights_.resize(codes_);
  order_.resize(codes_);
  scratch_.resize(codes_);
  dense_.resize(grammar.vocabulary());
}

template <typename Real>
void DistributionPipeline<Real>::process(std::span<const Real> cond, std::span<const Real> uncond,
                                std::span<const std::uint8_t> allowed, const RowEdits& edits) {
  guide(cond, uncond, allowed);
  if (!edits.empty()) edit(edits);
  if (settings_.temperature == 0) {
    if (!warm_.empty()) {
      weigh();
      put_weights(warm_);
    }
    keep_greedy();
    return;
  }
  const Real temperature = temperature_of<Real>(settings_.temperature);
  if (temperature != Real{1}) {
    const Real largest = largest_of(logits_.data(), kept_);
    for (std::size_t i = 0; i < kept_; ++i) {
      logits_[i] = heated_logit(logits_[i], largest, temperature);
    }
  }
  if (settings_.top_k > 0) keep_top_k();
  if (settings_.top_p < 1) keep_top_p();
  if (settings_.min_p > 0) keep_min_p();
  if (settings_.typical < 1) keep_typical();
}

template <typename Real>
void DistributionPipeline<Real>::process_at(std::size_t position, std::span<const Real> cond,
                                   std::span<const Real> uncond, const RowEdits& edits) {
  const std::optional<std::int32_t> forced = grammar_.forced(position);
  if (!forced) return process(cond, uncond, {}, edits);
  whole_ = false;
  support_[0] = *forced;
  logits_[0] = 0;
  kept_ = 1;
}

template <typename Real>
void DistributionPipeline<Real>::guide(std::span<const Real> cond, std::span<const Real> uncond,
                              std::span<const std::uint8_t> allowed) {
  expects(cond.size() == codes_ && (!settings_.guided() || uncond.size() == codes_) &&
              (allowed.empty() || allowed.size() == codes_),
          "logits and mask have one value an id");
  const Real scale = static_cast<Real>(settings_.guidance);
  if (allowed.empty()) {
    kept_ = codes_;
    if (!whole_) std::iota(support_.begin(), support_.end(), 0);
    whole_ = true;
    if (!settings_.guided()) {
      std::copy(cond.begin(), cond.end(), logits_.begin());
      return;
    }
    guide_row(cond.data(), uncond.data(), scale, codes_, logits_.data());
    return;
  }
  kept_ = 0;
  whole_ = false;
  for (std::size_t id = 0; id < codes_; ++id) {
    if (allowed[id] == 0) continue;
    support_[kept_] = static_cast<std::int32_t>(id);
    logits_[kept_++] = settings_.guided() ? guided_logit(cond[id], uncond[id], scale) : cond[id];
  }
  expects(kept_ > 0, "a position allows at least one id");
}

template <typename Real>
template <typename Keep>
void DistributionPipeline<Real>::compact(Keep keep) {
  whole_ = false;
  std::size_t out = 0;
  for (std::size_t i = 0; i < kept_; ++i) {
    if (!keep(i)) continue;
    support_[out] = support_[i];
    logits_[out++] = logits_[i];
  }
  kept_ = out;
}

// Logits stand by id when this is called.
template <typename Real>
void DistributionPipeline<Real>::edit(const RowEdits& edits) {
  expects(kept_ == codes_, "edits are of rows without a mask");
  std::fill_n(scratch_.begin(), codes_, edits.only ? Real{0} : Real{1});
  bool drops = edits.only;
  for (const LogitEdit& one : edits.edits) {
    const auto id = static_cast<std::size_t>(one.id);
    const bool dropped = one.kind == EditKind::kDrop;
    drops = drops || dropped;
    scratch_[id] = dropped ? Real{0} : Real{1};
    if (!dropped) logits_[id] = edited_logit(logits_[id], one);
  }
  if (drops) compact([&](std::size_t i) { return scratch_[i] > 0; });
  expects(kept_ > 0, "edits leave an id");
}

template <typename Real>
void DistributionPipeline<Real>::keep_greedy() {
  const auto best = std::max_element(logits_.begin(), logits_.begin() + to_index(kept_));
  whole_ = false;
  support_[0] = support_[static_cast<std::size_t>(best - logits_.begin())];
  logits_[0] = 0;
  kept_ = 1;
}

// Ties at the threshold all survive, so the support can be larger than k.
template <typename Real>
void DistributionPipeline<Real>::keep_top_k() {
  const auto k = static_cast<std::size_t>(settings_.top_k);
  if (k >= kept_) return;
  std::copy_n(logits_.begin(), kept_, scratch_.begin());
  const auto kth = scratch_.begin() + to_index(k - 1);
  std::nth_element(scratch_.begin(), kth, scratch_.begin() + to_index(kept_), std::greater<Real>());
  const Real threshold = *kth;
  compact([&](std::size_t i) { return logits_[i] >= threshold; });
}

template <typename Real>
void DistributionPipeline<Real>::weigh() {
  if (whole_) {
    softmax_row(logits_.data(), kept_, weights_.data());
  } else {
    softmax_row(support_.data(), logits_.data(), kept_, weights_.data());
  }
}

// Ids by |surprise - entropy|, the smallest set that reaches the mass; ties at its edge stay.
template <typename Real>
void DistributionPipeline<Real>::keep_typical() {
  weigh();
  RowSum entropies(static_cast<std::size_t>(support_[kept_ - 1]) + 1);
  for (std::size_t i = 0; i < kept_; ++i) {
    entropies.add(static_cast<std::size_t>(support_[i]), entropy_term(weights_[i]));
  }
  const double entropy = entropies.total();
  for (std::size_t i = 0; i < kept_; ++i) {
    scratch_[i] = typical_gap(weights_[i], entropy);
    order_[i] = static_cast<std::int32_t>(i);
  }
  std::sort(order_.begin(), order_.begin() + to_index(kept_),
            [&](std::int32_t a, std::int32_t b) { return nth(scratch_, a) < nth(scratch_, b); });
  const std::uint64_t bound = mass_bound<Real>(settings_.typical);
  std::uint64_t mass = 0;
  Real edge = 0;
  for (std::size_t n = 0; n < kept_ && mass < bound; ++n) {
    const auto i = static_cast<std::size_t>(order_[n]);
    mass += mass_of(weights_[i]);
    edge = scratch_[i];
  }
  compact([&](std::size_t i) { return scratch_[i] <= edge; });
}

// An id stays while the mass of those before it is below top_p: the first one always does. Equal
// logits go by id.
template <typename Real>
void DistributionPipeline<Real>::keep_top_p() {
  weigh();
  for (std::size_t i = 0; i < kept_; ++i) order_[i] = static_cast<std::int32_t>(i);
  std::sort(order_.begin(), order_.begin() + to_index(kept_), [&](std::int32_t a, std::int32_t b) {
    const Real x = nth(logits_, a), y = nth(logits_, b);
    return x != y ? x > y : a < b;
  });
  const std::uint64_t bound = mass_bound<Real>(settings_.top_p);
  std::uint64_t mass = 0;
  for (std::size_t n = 0; n < kept_; ++n) {
    const auto i = static_cast<std::size_t>(order_[n]);
    scratch_[i] = mass < bound ? Real{1} : Real{0};
    mass += mass_of(weights_[i]);
  }
  compact([&](std::size_t i) { return scratch_[i] > 0; });
}

template <typename Real>
void DistributionPipeline<Real>::keep_min_p() {
  const Real largest = largest_of(logits_.data(), kept_);
  compact([&](std::size_t i) { return reaches_min_p(logits_[i], largest, settings_.min_p); });
}

template <typename Real>
std::span<const Real> DistributionPipeline<Real>::probabilities() {
  weigh();
  if (whole_ && dense_.size() == codes_) return weights_;
  put_weights(dense_);
  return dense_;
}

// By id, 0 of those outside of the support.
template <typename Real>
void DistributionPipeline<Real>::put_weights(std::span<Real> out) {
  std::fill(out.begin(), out.end(), Real{0});
  for (std::size_t i = 0; i < kept_; ++i) nth(out, support_[i]) = weights_[i];
}

template class DistributionPipeline<float>;
template class DistributionPipeline<double>;

}  // namespace tessera
