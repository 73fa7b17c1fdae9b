// The four tails: forget; draw anew, speculative Jacobi decoding (SJD, arXiv 2410.01699); draw anew
// but stay where possible, coupled decoding (MC-SJD / SCD, arXiv 2510.24211) by maximal or Gumbel
// coupling. Each gives a draft whose distribution, given everything to its left, is the row: the record is
// always the row itself. Keeping the older record of a draft that stayed biases the output.
#pragma once

#include "engine/core/index.h"
#include "engine/decoding/method_part.h"
#include "engine/decoding/redraft_policy.h"

namespace tessera {

inline constexpr MethodPart kDropPart{.name = "drop", .idle = true};
inline constexpr MethodPart kResamplePart{.name = "resample"};
inline constexpr MethodPart kMaximalPart{.name = "maximal"};
inline constexpr MethodPart kGumbelRedraftPart{.name = "gumbel"};

template <typename Real, typename Random>
class DropRedraft final : public RedraftPolicy<Real, Random> {
 public:
  std::string_view name() const override { return kDropPart.name; }
  bool keeps() const override { return false; }
  bool describe(VerifyMethod& out) const override {
    out.redraft_policy = VerifyRedraft::kDrop;
    return true;
  }
  std::int32_t redraft(const TargetRow<Real>&, const DraftDistribution<Real>*, std::int32_t old_token,
                       std::uint32_t, Random&, std::span<Real>) const override {
    return old_token;
  }
};

template <typename Real, typename Random>
class ResampleRedraft final : public RedraftPolicy<Real, Random> {
 public:
  std::string_view name() const override { return kResamplePart.name; }
  bool describe(VerifyMethod& out) const override {
    out.redraft_policy = VerifyRedraft::kResample;
    return true;
  }
  std::int32_t redraft(const TargetRow<Real>& row, const DraftDistribution<Real>*, std::int32_t,
                       std::uint32_t position, Random& random,
                       std::span<Real> scratch) const override {
    return draw_residual(
        row, {Purpose::kDraft, position}, [](std::int32_t) { return Real{0}; }, random, scratch);
  }
};

// Stays with probability 1 - TV(old distribution, row), the most that any coupling can.
template <typename Real, typename Random>
class MaximalRedraft final : public RedraftPolicy<Real, Random> {
 public:
  std::string_view name() const override { return kMaximalPart.name; }
  bool needs_dists() const override { return true; }
  bool describe(VerifyMethod& out) const override {
    out.redraft_policy = VerifyRedraft::kMaximal;
    return true;
  }
  std::int32_t redraft(const TargetRow<Real>& row, const DraftDistribution<Real>* old,
                       std::int32_t old_token, std::uint32_t position, Random& random,
                       std::span<Real> scratch) const override {
    if (old == nullptr) return fresh_.redraft(row, old, old_token, position, random, scratch);
    const Real p = nth(row.probs, old_token);
    if (random.accepts({Purpose::kKeep, position}, p, old->prob(old_token))) return old_token;
    return draw_residual(
        row, {Purpose::kMove, position}, [&](std::int32_t id) { return old->prob(id); }, random,
        scratch);
  }

 private:
  ResampleRedraft<Real, Random> fresh_;
};

// Draws with the position's own noise, which all passes share: stays with probability at least
// (1 - TV) / (1 + TV), also from a pass to one long after.
template <typename Real, typename Random>
class GumbelRedraft final : public RedraftPolicy<Real, Random> {
 public:
  std::string_view name() const override { return kGumbelRedraftPart.name; }
  bool needs_probs() const override { return false; }
  bool describe(VerifyMethod& out) const override {
    out.redraft_policy = VerifyRedraft::kGumbel;
    return true;
  }
  std::int32_t redraft(const TargetRow<Real>& row, const DraftDistribution<Real>*, std::int32_t,
                       std::uint32_t position, Random& random, std::span<Real>) const override {
    return random.race(position, row.logits);
  }
};

}  // namespace tessera
