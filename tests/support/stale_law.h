// The fault that speculative Jacobi decoding invites: a draft that stayed keeps the law that it was
// first drawn from, although the row it now stands for has moved on. Maximal tail and exact rule
// that share such a record; with the fault switched off they are the shipped ones.
#pragma once

#include <memory>
#include <vector>

#include "engine/decoding/rules/exact_rule.h"
#include "engine/decoding/tails/tails.h"

namespace tessera {

// The record of the draft at each position of one picture; a position without one goes by its
// window.
template <typename Real>
class LawRecord {
 public:
  explicit LawRecord(std::size_t positions) : laws_(positions) {}
  void clear() {
    for (auto& law : laws_) law.clear();
  }
  void set(std::uint32_t position, std::span<const Real> law) {
    laws_.at(position).assign(law.begin(), law.end());
  }
  void set(std::uint32_t position, const DraftLaw<Real>& law, std::size_t vocabulary) {
    if (!laws_.at(position).empty()) return;
    for (std::size_t id = 0; id < vocabulary; ++id) {
      laws_[position].push_back(law.prob(static_cast<std::int32_t>(id)));
    }
  }
  DraftLaw<Real> of(std::uint32_t position, const DraftLaw<Real>& fallback) const {
    const std::vector<Real>& law = laws_.at(position);
    if (law.empty()) return fallback;
    return {LawKind::kDense, fallback.token, law, fallback.uniform};
  }

 private:
  std::vector<std::vector<Real>> laws_;
};

template <typename Real, typename Random>
class StaleTail final : public TailPolicy<Real, Random> {
 public:
  StaleTail(std::shared_ptr<LawRecord<Real>> record, bool faulty)
      : record_(std::move(record)), faulty_(faulty) {}
  std::string_view name() const override { return "stale"; }
  bool needs_laws() const override { return true; }
  std::int32_t redraft(const TargetRow<Real>& row, const DraftLaw<Real>* old,
                       std::int32_t old_token, std::uint32_t position, Random& random,
                       std::span<Real> scratch) const override {
    if (old == nullptr) {
      record_->set(position, row.probs);
      return maximal_.redraft(row, old, old_token, position, random, scratch);
    }
    const DraftLaw<Real> recorded = record_->of(position, *old);
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
  MaximalTail<Real, Random> maximal_;
  std::shared_ptr<LawRecord<Real>> record_;
  bool faulty_;
};

template <typename Real, typename Random>
class StaleRule final : public AcceptanceRule<Real, Random> {
 public:
  explicit StaleRule(std::shared_ptr<LawRecord<Real>> record) : record_(std::move(record)) {}
  std::string_view name() const override { return "stale"; }
  Promise promise() const override { return Promise::kSameLaw; }
  Judgement<Real> judge(const DraftTest<Real>& test, Random& random,
                        std::span<Real> scratch) const override {
    const DraftLaw<Real> recorded = record_->of(test.position, test.draft);
    return exact_.judge({test.target, recorded, test.token, test.position, test.depth}, random,
                        scratch);
  }

 private:
  ExactRule<Real, Random> exact_;
  std::shared_ptr<LawRecord<Real>> record_;
};

}  // namespace tessera
