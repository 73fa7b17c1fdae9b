// The rules for several candidates of one position.
//
// Recursive rejection: with P the target's distribution and Q the candidates', test the first with min(1,
// P/Q); refused, P becomes norm((P - Q)+) and the next one is tested. Independent candidates keep Q
// (SpecInfer, arXiv 2305.09781); candidates without replacement lose the refused id from it and are
// normalised again (RSD, arXiv 2402.14160).
//
// k-SEQ (SpecTr, arXiv 2310.15141, alg. 2): k independent candidates, each accepted with
// min(1, P / (rho Q)), where rho in [1, k] solves 1 - (1 - b)^k = rho b, b = sum min(Q, P / rho).
// Its first test depends on k: their number must not depend on what they are.
//
// Points: candidates without chance, each accepted with its own remaining probability.
//
// Equality: the candidate that the target draws there under the position's noise, if it is one of
// them; the image is plain decoding's.
#pragma once

#include "engine/core/acceptance_math.h"
#include "engine/core/index.h"
#include "engine/core/row_tree.h"
#include "engine/decoding/trees/sibling_rule.h"
#include "engine/decoding/trees/tree_growth.h"

namespace tessera {

// Trees of recursive rejection: candidates with repeats, without, grown by value, and with the distributions
// of the last pass's window.
inline constexpr MethodPart kRrsPart{.name = "rrs", .settings = rows_of<TreeSettings>};
inline constexpr MethodPart kRsdPart{.name = "rsd", .settings = rows_of<TreeSettings>};
inline constexpr MethodPart kDySpecPart{.name = "dyspec", .settings = rows_of<TreeSettings>};
inline constexpr MethodPart kPacPart{.name = "pac", .settings = rows_of<TreeSettings>};
inline constexpr MethodPart kKSeqPart{.name = "kseq", .settings = rows_of<TreeSettings>};
inline constexpr MethodPart kPointsPart{.name = "points", .settings = rows_of<TreeSettings>};
inline constexpr MethodPart kGumbelTreePart{.name = "gumbel", .settings = rows_of<TreeSettings>};

template <typename Real, typename Random>
class RecursiveRule final : public SiblingRule<Real, Random> {
 public:
  explicit RecursiveRule(bool distinct) : distinct_(distinct) {}
  std::string_view name() const override { return distinct_ ? kRsdPart.name : kRrsPart.name; }
  Guarantee guarantee() const override { return Guarantee::kLossless; }
  Candidates candidates() const override {
    return distinct_ ? Candidates::kDistinct : Candidates::kIndependent;
  }
  bool describe(VerifyMethod& out) const override {
    out.siblings = distinct_ ? VerifySiblings::kDistinct : VerifySiblings::kRecursive;
    return true;
  }

  SiblingDecision<Real> accept(const SiblingTest<Real>& test, Random& random,
                               std::span<Real> scratch) const override {
    const std::size_t vocabulary = scratch.size() / 2;
    ResidualRow<Real> target(test.target, scratch.first(vocabulary));
    const std::span<const std::int32_t> tried = test.candidates;
    SiblingDecision<Real> out;
    Real left = 1;  // of the distribution's mass, without what was refused
    for (std::size_t j = 0; j < tried.size(); ++j) {
      // P/Q of the candidate, both normalised: P = mass / total, Q = q / left.
      const Real q = test.dist.prob(tried[j]);
      const Real chance = target.mass(tried[j]) * left, of = q * target.total();
      out.strict += chance < of ? chance / of : Real{1};
      if (random.accepts({Purpose::kAccept, test.position, narrow<std::uint32_t>(j)}, chance, of)) {
        out.chosen = narrow<std::int32_t>(j);
        out.token = tried[j];
        return out;
      }
      const Real scale = target.total() / left;
      const std::span<const std::int32_t> refused = tried.first(distinct_ ? j : 0);
      target.subtract([&](std::int32_t id) {
        const bool gone = std::find(refused.begin(), refused.end(), id) != refused.end();
        return gone ? Real{0} : test.dist.prob(id) * scale;
      });
      if (distinct_) left = mass_without(test.dist, tried.first(j + 1), vocabulary);
    }
    out.token = target.draw(test.position, random, scratch.subspan(vocabulary));
    return out;
  }

 private:
  // Summed anew: subtracting from 1 would leave rounding where nothing is left.
  static Real mass_without(const DraftDistribution<Real>& dist, std::span<const std::int32_t> gone,
                           std::size_t vocabulary) {
    Real sum = 0;
    for (std::size_t id = 0; id < vocabulary; ++id) {
      const auto token = narrow<std::int32_t>(id);
      if (std::find(gone.begin(), gone.end(), token) == gone.end()) sum += dist.prob(token);
    }
    return sum;
  }

  bool distinct_;
};

template <typename Real, typename Random>
class KSeqRule final : public SiblingRule<Real, Random> {
 public:
  std::string_view name() const override { return kKSeqPart.name; }
  Guarantee guarantee() const override { return Guarantee::kLossless; }
  Candidates candidates() const override { return Candidates::kIndependent; }
  bool describe(VerifyMethod& out) const override {
    out.siblings = VerifySiblings::kKSeq;
    return true;
  }

  SiblingDecision<Real> accept(const SiblingTest<Real>& test, Random& random,
                               std::span<Real> scratch) const override {
    KSeqSearch search(narrow<std::uint32_t>(test.candidates.size()));
    while (search.open()) search.halve(overlap(test, search.middle()));
    // At `high` the residual below cannot be negative.
    const auto rho = static_cast<Real>(search.high);
    SiblingDecision<Real> out;
    for (std::size_t j = 0; j < test.candidates.size(); ++j) {
      const std::int32_t token = test.candidates[j];
      const Real chance = nth(test.target.probs, token);
      const Real of = rho * test.dist.prob(token);
      out.strict += chance < of ? chance / of : Real{1};
      if (random.accepts({Purpose::kAccept, test.position, narrow<std::uint32_t>(j)}, chance, of)) {
        out.chosen = narrow<std::int32_t>(j);
        out.token = token;
        return out;
      }
    }
    const double b = overlap(test, static_cast<double>(rho));
    const auto share = static_cast<Real>(b > 0 ? kseq_chance(b, search.count) / b : 0.0);
    const std::size_t vocabulary = scratch.size() / 2;
    ResidualRow<Real> target(test.target, scratch.first(vocabulary));
    target.subtract([&](std::int32_t id) {
      const Real p = nth(test.target.probs, id);
      return std::min(test.dist.prob(id), p / rho) * share;
    });
    out.token = target.draw(test.position, random, scratch.subspan(vocabulary));
    return out;
  }

 private:
  // b: the chance that one candidate is accepted.
  static double overlap(const SiblingTest<Real>& test, double rho) {
    RowSum sum(test.target.probs.size());
    for (const std::int32_t id : test.target.logits.support) {
      const auto place = to_size(id);
      const auto p = to_double(test.target.probs[place]);
      sum.add(place, kseq_term(p, to_double(test.dist.prob(id)), rho));
    }
    return sum.total();
  }
};

template <typename Real, typename Random>
class PointsRule final : public SiblingRule<Real, Random> {
 public:
  std::string_view name() const override { return kPointsPart.name; }
  Guarantee guarantee() const override { return Guarantee::kLossless; }
  Candidates candidates() const override { return Candidates::kLikeliest; }
  bool describe(VerifyMethod& out) const override {
    out.siblings = VerifySiblings::kPoints;
    return true;
  }

  SiblingDecision<Real> accept(const SiblingTest<Real>& test, Random& random,
                               std::span<Real> scratch) const override {
    const std::size_t vocabulary = scratch.size() / 2;
    ResidualRow<Real> target(test.target, scratch.first(vocabulary));
    SiblingDecision<Real> out;
    for (std::size_t j = 0; j < test.candidates.size(); ++j) {
      const std::int32_t token = test.candidates[j];
      const Real mass = target.mass(token);
      out.strict += mass / target.total();
      if (random.accepts({Purpose::kAccept, test.position, narrow<std::uint32_t>(j)}, mass,
                         target.total())) {
        out.chosen = narrow<std::int32_t>(j);
        out.token = token;
        return out;
      }
      target.subtract([&](std::int32_t id) { return id == token ? mass : Real{0}; });
    }
    out.token = target.draw(test.position, random, scratch.subspan(vocabulary));
    return out;
  }
};

template <typename Real, typename Random>
class EqualityRule final : public SiblingRule<Real, Random> {
 public:
  std::string_view name() const override { return kGumbelTreePart.name; }
  Guarantee guarantee() const override { return Guarantee::kSameTokens; }
  Candidates candidates() const override { return Candidates::kRace; }
  bool describe(VerifyMethod& out) const override {
    out.siblings = VerifySiblings::kEquality;
    return true;
  }

  SiblingDecision<Real> accept(const SiblingTest<Real>& test, Random& random,
                               std::span<Real>) const override {
    SiblingDecision<Real> out;
    out.token = random.race(test.position, test.target.logits);
    const auto found = std::find(test.candidates.begin(), test.candidates.end(), out.token);
    if (found != test.candidates.end()) {
      out.chosen = narrow<std::int32_t>(found - test.candidates.begin());
    }
    out.strict = out.chosen >= 0 ? Real{1} : Real{0};
    return out;
  }
};

}  // namespace tessera
