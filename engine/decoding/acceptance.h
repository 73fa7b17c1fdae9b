// The seam for rules that verify a draft against the target's distribution, and what they share. A
// rule knows rows and tokens: neither cache nor model nor who drafted.
//
// With p the target's distribution, q the draft's recorded distribution and a(x) the chance that
// draft x is accepted, the output is distributed as p if a = min(1, p/q) and a refused draft is
// replaced by a draw from norm((p - q a)+) (Leviathan et al. 2023, Chen et al. 2023). For any a >=
// min(1, p/q) with that residual the total variation between output and p is the mean of a - min(1,
// p/q), which the meters sum up.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "engine/backend/row_verifier.h"
#include "engine/core/acceptance_math.h"
#include "engine/core/index.h"
#include "engine/decoding/draft_window.h"
#include "engine/sampling/randomness.h"

namespace tessera {

// A row of the target after guidance, mask, temperature and cuts.
template <typename Real>
struct TargetRow {
  LogitRow<Real> logits;
  std::span<const Real> probs;  // [V] softmax of it, 0 outside the support
  // [V] at temperature 0, for rules that read it: the softmax of the whole row, without temperature.
  std::span<const Real> warm = {};
};

// One draft that is verified.
template <typename Real>
struct DraftTest {
  const TargetRow<Real>& target;
  const DraftDistribution<Real>& draft;
  std::int32_t token = 0;      // the draft
  std::uint32_t position = 0;  // of the image's tokens
  std::uint32_t depth = 0;     // drafts before it in this pass
  // What may be accepted beyond the exact rule's chance: what is left of a total-variation budget.
  Real max_excess = 1;
};

template <typename Real>
struct Decision {
  bool accepted = false;
  std::int32_t token = 0;  // what stands at the position now: the draft, or its replacement
  Real strict = 0;         // min(1, p/q), what the exact rule would accept with
  Real chance = 0;         // what this rule accepts with
};

// Guarantees a rule makes about images.
enum class Guarantee : std::uint8_t {
  kSameTokens,  // those of plain decoding, one for one
  kLossless,     // distributed as plain decoding's
  kNone,        // another distribution
};

constexpr std::string_view guarantee_name(Guarantee guarantee) {
  if (guarantee == Guarantee::kSameTokens) return "same tokens";
  return guarantee == Guarantee::kLossless ? "same distribution" : "none";
}

template <typename Real, typename Random>
class AcceptanceRule {
 public:
  virtual ~AcceptanceRule() = default;
  virtual std::string_view name() const = 0;
  virtual Guarantee guarantee() const = 0;
  // Whether verifying reads the distribution of the draft. Without it windows keep tokens alone.
  virtual bool needs_dists() const { return true; }
  // Whether verifying at temperature 0 reads TargetRow::warm.
  virtual bool reads_warm() const { return false; }
  // Writes down what a device needs to verify by this rule; false where only the host can.
  virtual bool describe(VerifyMethod&) const { return false; }
  // `scratch` [2 V].
  virtual Decision<Real> accept(const DraftTest<Real>& test, Random& random,
                                std::span<Real> scratch) const = 0;
};

// Where the stream's grammar forces an id, no rule is asked and nothing is drawn.
template <typename Real>
Decision<Real> verify_forced(std::int32_t draft, std::int32_t forced) {
  const bool right = draft == forced;
  return {right, forced, right ? Real{1} : Real{0}, right ? Real{1} : Real{0}};
}

// min(1, p(x) / q(x)).
template <typename Real>
Real strict_chance(const DraftTest<Real>& test) {
  const Real p = nth(test.target.probs, test.token);
  return chance_of(p, test.draft.prob(test.token));
}

// A draw from norm((p - q a)+), where q_a(id) gives q(id) a(id). If rounding leaves no mass, from
// p.
template <typename Real, typename Random, typename Taken>
std::int32_t draw_residual(const TargetRow<Real>& target, const Draw& draw, Taken q_a,
                           Random& random, std::span<Real> scratch) {
  const std::span<const std::int32_t> ids = target.logits.support;
  const std::span<Real> weights = scratch.first(ids.size());
  bool any = false;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const Real p = nth(target.probs, ids[i]);
    weights[i] = left_of(p, q_a(ids[i]));
    any = any || weights[i] > 0;
  }
  if (!any) {
    for (std::size_t i = 0; i < ids.size(); ++i) {
      weights[i] = nth(target.probs, ids[i]);
    }
  }
  return random.weighted(draw, ids, std::span<const Real>(weights));
}

// The test and its replacement for a rule whose chance for `test.token` is min(1, chance_mass / q)
// where the exact one's is min(1, p / q), with the residual norm((p - q)+), as every chance_mass >= p
// has it.
template <typename Real, typename Random>
Decision<Real> verify_by_mass(const DraftTest<Real>& test, Real p, Real q, Real chance_mass,
                              Random& random, std::span<Real> scratch) {
  Decision<Real> out;
  out.strict = chance_of(p, q);
  if (test.max_excess < 1) {
    chance_mass = bounded_mass(chance_mass, p, q, out.strict, test.max_excess);
  }
  out.chance = chance_of(chance_mass, q);
  out.accepted = random.accepts({Purpose::kAccept, test.position}, chance_mass, q);
  out.token = out.accepted
                  ? test.token
                  : draw_residual(
                        test.target, {Purpose::kResidual, test.position},
                        [&](std::int32_t id) { return test.draft.prob(id); }, random, scratch);
  return out;
}

// The same with the probabilities of target and draft.
template <typename Real, typename Random>
Decision<Real> verify_by_ratio(const DraftTest<Real>& test, Real chance_mass, Random& random,
                               std::span<Real> scratch) {
  const Real p = nth(test.target.probs, test.token);
  // What the cuts or the mask of the target forbid stays forbidden, however like its neighbours.
  return verify_by_mass(test, p, test.draft.prob(test.token), p > 0 ? chance_mass : Real{0}, random,
                        scratch);
}

}  // namespace tessera
