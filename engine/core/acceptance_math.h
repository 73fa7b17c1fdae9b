// The arithmetic of testing one draft: p the target's probability, q the draft's. Shared by hosts
// and devices, so that they decide alike to the bit.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/core/fixed_math.h"
#include "engine/core/index.h"

namespace tessera {

// min(1, mass / q).
template <typename Real>
constexpr Real chance_of(Real mass, Real q) {
  return mass < q ? mass / q : Real{1};
}

// True with probability min(1, chance / of) over `uniform`; never when chance is 0.
template <typename Real>
constexpr bool passes(double uniform, Real chance, Real of) {
  return uniform * to_double(of) < to_double(chance);
}

// What a residual leaves of p where `taken` is accounted for.
template <typename Real>
constexpr Real left_of(Real p, Real taken) {
  const Real left = p - taken;
  return left > 0 ? left : Real{0};
}

// A budget of total variation, spent evenly along a stream of `total` tokens: what is left of its
// share where `stands` of them stand with the one under test.
template <typename Real>
constexpr Real excess_left(double budget, std::size_t stands, std::size_t total, double spent) {
  const double share = to_double(stands) / to_double(total);
  const double left = budget * share - spent;
  return static_cast<Real>(left > 0 ? left : 0.0);
}
// A mass whose chance stays within `excess` of the strict one, no less than p.
template <typename Real>
constexpr Real bounded_mass(Real mass, Real p, Real q, Real strict, Real excess) {
  const Real most = (strict + excess) * q;
  const Real less = most < mass ? most : mass;
  return p < less ? less : p;
}

// Cooling acceptance: the factor on p at a depth.
template <typename Real>
constexpr Real cool_factor(double peak, double decay, std::uint32_t depth) {
  return static_cast<Real>(peak * fixed_exp(-decay * depth));
}

// Grouped acceptance: P(C) / Q(C) of the group as a mass next to the draft's own q, no less than p.
// target, draft: P(C) and Q(C); p, q the draft's own.
template <typename Real>
constexpr Real group_mass(Real target, Real draft, Real p, Real q) {
  const bool alone = target == p && draft == q;
  if (alone || !(draft > 0)) return p;
  const Real mass = target / draft * q;
  return mass > p ? mass : p;
}

// Relaxed acceptance: the most that may be borrowed of neighbours.
template <typename Real>
constexpr Real borrowed_bound(double delta, double lambda, Real p) {
  const auto bound = static_cast<Real>(delta);
  if (!(lambda > 0)) return bound;
  const Real second = static_cast<Real>(lambda - 1) * p;
  return second < bound ? second : bound;
}

// The same at temperature 0: whether a draft of probability p, `mass` with what it borrows, comes before
// the likeliest one, whose probability is `largest`. What the row forbids never does.
template <typename Real>
constexpr bool moved_mass_wins(Real p, Real mass, int token, Real largest, int likeliest) {
  return p > 0 && (mass > largest || (mass == largest && token < likeliest));
}

// k-SEQ (SpecTr, arXiv 2310.15141, alg. 2): what an id adds to b, the chance that one candidate is
// accepted at rho. The ids are summed in the order of engine/core/row_tree.h.
constexpr double kseq_term(double p, double q, double rho) {
  const double most = p / rho;
  return q < most ? q : most;
}
// The chance that one of `count` is accepted where one alone is with b.
constexpr double kseq_chance(double b, std::uint32_t count) {
  return 1.0 - fixed_power(1.0 - (b < 1.0 ? b : 1.0), count);
}
// The search for rho in [1, count] with kseq_chance(b, count) = rho b: b is asked at middle() and
// told to halve() while open().
struct KSeqSearch {
  double low, high;
  std::uint32_t count;
  int steps = 0;

  constexpr explicit KSeqSearch(std::uint32_t of) : low(1.0), high(to_double(of)), count(of) {}
  constexpr bool open() const { return steps < 40 && low < high; }
  constexpr double middle() const { return (low + high) / 2; }
  constexpr void halve(double b) {
    const double at = middle();
    if (kseq_chance(b, count) > at * b) {
      low = at;
    } else {
      high = at;
    }
    ++steps;
  }
};

// What of a code's vector and another's coordinate adds to their squared distance.
constexpr double distance_term(float a, float b) {
  const double gap = double{a} - double{b};
  return gap * gap;
}

}  // namespace tessera
