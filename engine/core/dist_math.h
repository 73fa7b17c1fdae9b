// The arithmetic of a distribution's stages, id by id: what a host that walks lists of ids and a device that
// walks whole rows must share to keep the same ids with the same bits. Masses are whole numbers of a
// unit, whose sums have no order.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

#include "engine/core/fixed_math.h"
#include "engine/core/index.h"

namespace tessera {

// A logit that is NaN, infinite or beyond 2^100, which guidance could carry to infinity.
constexpr bool unsound(float logit) {
  constexpr std::uint32_t kExponent = 0x7f800000u, kLargest = (127u + 100u) << 23;
  return (std::bit_cast<std::uint32_t>(logit) & kExponent) >= kLargest;
}

template <typename Real>
constexpr Real guided_logit(Real cond, Real uncond, Real scale) {
  return uncond + scale * (cond - uncond);
}

// A temperature above zero as Real can hold it.
template <typename Real>
constexpr Real temperature_of(double temperature) {
  const auto out = static_cast<Real>(temperature);
  return out > 0 ? out : std::numeric_limits<Real>::min();
}
// From the largest down, so that no temperature is too small for the range of Real.
template <typename Real>
constexpr Real heated_logit(Real logit, Real largest, Real temperature) {
  return (logit - largest) / temperature;
}

// A number that orders as the logit does, both zeros alike. Not for NaN.
constexpr std::uint32_t order_key(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value + 0.0f);
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
}
constexpr float logit_of_key(std::uint32_t key) {
  return std::bit_cast<float>((key >> 31) != 0 ? key & 0x7fffffffu : ~key);
}

// Probabilities as whole numbers of 2^-40 (of 2^-52 for double).
template <typename Real>
constexpr double mass_unit() {
  return sizeof(Real) == sizeof(float) ? 0x1p40 : 0x1p52;
}
template <typename Real>
constexpr std::uint64_t mass_of(Real weight) {
  return static_cast<std::uint64_t>(to_double(weight) * mass_unit<Real>() + 0.5);
}
// The least whole mass that reaches a share of all, 0 < share < 1.
template <typename Real>
constexpr std::uint64_t mass_bound(double share) {
  const double exact = share * mass_unit<Real>();
  const auto floor = static_cast<std::uint64_t>(exact);
  return to_double(floor) < exact ? floor + 1 : floor;
}

// Whether an id is likely enough next to the likeliest.
template <typename Real>
constexpr bool reaches_min_p(Real logit, Real largest, double min_p) {
  return fixed_exp(to_double(logit - largest)) >= min_p;
}

// -log of a weight; far away for none.
template <typename Real>
constexpr double surprise_of(Real weight) {
  return weight > 0 ? -fixed_log(to_double(weight)) : 1e30;
}
// What an id adds to the entropy.
template <typename Real>
constexpr double entropy_term(Real weight) {
  return weight > 0 ? to_double(weight) * surprise_of(weight) : 0;
}
// How far an id is from typical.
template <typename Real>
constexpr Real typical_gap(Real weight, double entropy) {
  const double gap = surprise_of(weight) - entropy;
  return static_cast<Real>(gap < 0 ? -gap : gap);
}

// log p of a token that stands; far below where rounding left it nothing.
template <typename Real>
constexpr double log_of_probability(Real p) {
  return p > 0 ? fixed_log(to_double(p)) : -708.0;
}
// Whether an id comes before a token in descending order of probability, equal ones by id.
template <typename Real>
constexpr bool comes_before(Real p, std::int32_t id, Real own, std::int32_t token) {
  return p > own || (p == own && id < token);
}

}  // namespace tessera
