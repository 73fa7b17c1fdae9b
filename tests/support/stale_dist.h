// The fault that speculative Jacobi decoding invites: a draft that stayed keeps the distribution that it was
// first drawn from, although the row it now stands for has moved on. Maximal tail and exact rule
// that share such a record; with the fault switched off they are the shipped ones.
#pragma once

#include <memory>
#include <vector>

#include "engine/decoding/rules/exact_rule.h"
#include "engine/decoding/tails/tails.h"

namespace tessera {

// The record of the draft at each position of one image; a position without one goes by its
// window.
template <typename Real>
class DistributionRecord {
 public:
  explicit DistributionRecord(std::size_t positions) : dists_(positions) {}
  void clear() {
    for (auto& dist : dists_) dist.clear();
  }
  void set(std::uint32_t position, std::span<const Real> dist) {
    dists_.at(position).assign(dist.begin(), dist.end());
  }
  void set(std::uint32_t position, const DraftDistribution<Real>& dist, std::size_t vocabulary) {
    if (!dists_.at(position).empty()) return;
    for (std::size_t id = 0; id < vocabulary; ++id) {
      dists_[position].push_back(dist.prob(static_cast<std::int32_t>(id)));
    }
  }
  DraftDistribution<Real> of(std::uint32_t position, const DraftDistribution<Real>& fallback) const {
    const std::vector<Real>& dist = dists_.at(position);
    if (dist.empty()) return fallback;
    return {DistributionKind::kDense, fallback.token, dist, fallback.uniform};
  }

 private:
  std::vector<std::vector<Real>> dists_;
};

template <typename Real, typename Random>
class StaleRedraft final : public RedraftPolicy<Real, Random> {
 public:
  StaleRedraft(std::shared_ptr<DistributionRecord<Real>> record, bool faulty)
      : record_(std::move(record)), faulty_(faulty) {}
  std::string_view name() const override { return "stale"; }
  bool needs_dists() const override { return true; }
  std::int32_t redraft(const TargetRow<Real>& row, const DraftDistribution<Real>* old,
                       std::int32_t old_token, std::uint32_t position, Random& random,
                       std::span<Real> scratch) const override {
    if (old == nullptr) {
      record_->set(position, row.probs);
      return maximal_.redraft(row, old, old_token, position, random, scratch);
    }
    const DraftDistribution<Real> recorded = record_->of(position, *old);
    const std::int32_t token =
        maximal_.redraft(row, &recorded, old_token, position, random, scratch);
    if (faulty_ && token == old_token) {
      record_->set(position, *old, row.probs.size());
    } else {
      record_->set(position, row.probs);
    }
    return token;
  }

 private:
  MaximalRedraft<Real, Random> maximal_;
  std::shared_ptr<DistributionRecord<Real>> record_;
  bool faulty_;
};

template <typename Real, typename Random>
class StaleRule final : public AcceptanceRule<Real, Random> {
 public:
  explicit StaleRule(std::shared_ptr<DistributionRecord<Real>> record) : record_(std::move(record)) {}
  std::string_view name() const override { return "stale"; }
  Guarantee guarantee() const override { return Guarantee::kLossless; }
  Decision<Real> accept(const DraftTest<Real>& test, Random& random,
                        std::span<Real> scratch) const override {
    const DraftDistribution<Real> recorded = record_->of(test.position, test.draft);
    return exact_.accept({test.target, recorded, test.token, test.position, test.depth}, random,
                        scratch);
  }

 private:
  ExactRule<Real, Random> exact_;
  std::shared_ptr<DistributionRecord<Real>> record_;
};

}  // namespace tessera
