// The seam for rules that verify several candidates for one position. The candidate that is taken
// must be the first accepted one in the order they were drawn: taking the one whose continuation
// was accepted longest, as public code does, biases the output.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>

#include "engine/core/index.h"
#include "engine/decoding/acceptance.h"

namespace tessera {

// How the candidates of a position come from their recorded distribution.
enum class Candidates : std::uint8_t {
  kIndependent,  // each drawn from the distribution: repeats are possible
  kDistinct,     // drawn one after another without replacement
  kLikeliest,    // no chance in them: the likeliest ones
  kRace,         // the first of the race under the position's noise
};

template <typename Real>
struct SiblingTest {
  const TargetRow<Real>& target;
  const DraftDistribution<Real>& dist;                 // that all candidates were drawn from
  std::span<const std::int32_t> candidates;  // in draw order
  std::uint32_t position = 0;                // of the image's tokens
};

template <typename Real>
struct SiblingDecision {
  std::int32_t chosen = -1;  // index of the candidate that stands; -1 = none
  std::int32_t token = 0;    // what stands
  Real strict = 0;           // sum of their chances
};

template <typename Real, typename Random>
class SiblingRule {
 public:
  virtual ~SiblingRule() = default;
  virtual std::string_view name() const = 0;
  virtual Guarantee guarantee() const = 0;
  virtual Candidates candidates() const = 0;
  // Writes down what a device needs to verify by this rule; false where only the host can.
  virtual bool describe(VerifyMethod&) const { return false; }
  // `scratch` [2 V]. At least one candidate.
  virtual SiblingDecision<Real> accept(const SiblingTest<Real>& test, Random& random,
                                       std::span<Real> scratch) const = 0;
};

// The row's probabilities of its support, and what repeated refusals leave of them.
template <typename Real>
class ResidualRow {
 public:
  // `masses` [V] is the storage; ids outside the support are never read.
  ResidualRow(const TargetRow<Real>& row, std::span<Real> masses)
      : ids_(row.logits.support), masses_(masses) {
    for (const std::int32_t id : ids_) masses_[at(id)] = row.probs[at(id)];
    total_ = 1;
  }

  // Unnormalised; 0 for what the row forbids.
  Real mass(std::int32_t id) const {
    return std::binary_search(ids_.begin(), ids_.end(), id) ? masses_[at(id)] : Real{0};
  }
  Real total() const { return total_; }

  // Subtracts `taken(id)` of each, no less than 0. Where rounding would leave nothing, nothing is
  // taken: there the refusal had no probability.
  template <typename Taken>
  void subtract(Taken taken) {
    Real left = 0;
    for (const std::int32_t id : ids_) left += std::max(masses_[at(id)] - taken(id), Real{0});
    if (!(left > 0)) return;
    for (const std::int32_t id : ids_) {
      masses_[at(id)] = std::max(masses_[at(id)] - taken(id), Real{0});
    }
    total_ = left;
  }

  template <typename Random>
  std::int32_t draw(std::uint32_t position, Random& random, std::span<Real> scratch) const {
    const std::span<Real> weights = scratch.first(ids_.size());
    for (std::size_t i = 0; i < ids_.size(); ++i) weights[i] = masses_[at(ids_[i])];
    return random.weighted({Purpose::kResidual, position}, ids_, std::span<const Real>(weights));
  }

 private:
  static std::size_t at(std::int32_t id) { return to_size(id); }

  std::span<const std::int32_t> ids_;
  std::span<Real> masses_;
  Real total_ = 1;
};

}  // namespace tessera
