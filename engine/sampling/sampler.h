// Drawing by Gumbel-argmax (Maddison, Tarlow & Minka 2014): the id with the largest logit + noise
// is distributed as the softmax of the logits; by weights it is the one whose exponential clock
// rings first, of the same noise. The noise of an id at a position is addressed by
// (seed, item; position, id) and by nothing else, above all not by the pass, so that any decoding
// order that sees the same logits draws the same ids.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "engine/core/error.h"
#include "engine/core/index.h"
#include "engine/core/keyed_noise.h"
#include "engine/core/philox.h"
#include "engine/sampling/row_math.h"

namespace tessera {

// Gumbel(0, 1) noise for the ids of one position. 32 random bits each; -3.2 < value < 22.9.
class GumbelNoise {
 public:
  GumbelNoise(std::uint64_t seed, std::uint64_t item, std::uint32_t position)
      : GumbelNoise(philox_key(seed, item), position, 0, Purpose::kSample) {}
  // The noise of any other decision than the position's own, in one pass.
  GumbelNoise(std::array<std::uint32_t, 2> key, std::uint32_t position, std::uint32_t pass,
              Purpose purpose)
      : key_(key), position_(position), pass_(pass), purpose_(purpose) {}

  static constexpr double kLargest = kLargestGumbel;

  double operator()(std::int32_t id) { return value(bits(id)); }

  // The random bits of an id, and the noise they stand for: grows with them.
  std::uint32_t bits(std::int32_t id) {
    const auto quad = low_bits<std::uint32_t>(id) / 16;
    if (quad != quad_) {
      bits_ =
          philox4x32_quad({position_, pass_, static_cast<std::uint32_t>(purpose_), 4 * quad}, key_);
      quad_ = quad;
    }
    return bits_[low_bits<std::uint32_t>(id) % 16];
  }
  static double value(std::uint32_t bits) { return gumbel_of(bits); }
  // Bits below this give less noise than `least`, 0 < least < kLargest. Not the tightest bound: a
  // table in steps of a quarter.
  static std::uint32_t fewest_bits(double least) { return kFewestBits[gumbel_step(least)]; }

 private:
  static constexpr auto kFewestBits = fewest_gumbel_bits();
  std::array<std::uint32_t, 2> key_;
  std::uint32_t position_;
  std::uint32_t pass_;
  Purpose purpose_;
  std::uint32_t quad_ = 0xffffffffu;
  PhiloxQuad bits_ = {};
};

// argmax over the support of logit + noise(id), the lowest id on a tie. `Noise` maps an id to a
// number of at most `largest`; ids that cannot win even then are passed over without drawing.
template <typename Real, typename Noise>
std::int32_t gumbel_argmax(std::span<const std::int32_t> support, std::span<const Real> logits,
                           Noise&& noise, double largest) {
  std::int32_t best_id = support[0];
  if (support.size() == 1) return best_id;
  double best = to_double(logits[0]) + noise(support[0]);
  for (std::size_t i = 1; i < support.size(); ++i) {
    const double logit = to_double(logits[i]);
    if (logit + largest <= best) continue;
    const double value = logit + noise(support[i]);
    if (value > best) {
      best = value;
      best_id = support[i];
    }
  }
  return best_id;
}

// The same with the noise of a position, sooner: the likeliest id goes first, and an id whose bits
// cannot reach it costs no logarithm.
template <typename Real>
std::int32_t gumbel_argmax(std::span<const std::int32_t> support, std::span<const Real> logits,
                           GumbelNoise& noise) {
  expects(logits.size() == support.size(), "one logit an id");
  if (support.size() == 1) return support[0];
  const Real largest = largest_of(logits.data(), logits.size());
  const std::size_t mode =
      to_size(std::find(logits.begin(), logits.end(), largest) - logits.begin());
  std::int32_t best_id = support[mode];
  double best = to_double(largest) + noise(best_id);
  const std::int32_t* const id = support.data();
  const Real* const logit = logits.data();
  for (std::size_t i = 0; i < support.size(); ++i) {
    const double own = to_double(logit[i]);
    const double gap = best - own;
    if (i == mode || gap > GumbelNoise::kLargest) continue;
    const std::uint32_t bits = noise.bits(id[i]);
    if (gap > 0 && bits < GumbelNoise::fewest_bits(gap)) continue;
    const double value = own + GumbelNoise::value(bits);
    if (value > best || (value == best && id[i] < best_id)) {
      best = value;
      best_id = id[i];
    }
  }
  return best_id;
}

// The same by weights, none negative and one above zero: the clock of an id rings at
// -log(u) / weight, u in (0, 1) from its bits, and the first one wins, the lowest id on a tie. The
// heaviest id goes first; as -log(u) >= 1 - u, most others are out before any logarithm.
template <typename Real, typename Noise>
std::int32_t first_clock(std::span<const std::int32_t> ids, std::span<const Real> weights,
                         Noise& noise) {
  expects(!ids.empty() && ids.size() == weights.size(), "one weight an id");
  const Real heaviest = largest_of(weights.data(), weights.size());
  expects(heaviest > 0, "a draw has a weight above zero");
  const std::size_t mode =
      to_size(std::find(weights.begin(), weights.end(), heaviest) - weights.begin());
  std::int32_t best_id = ids[mode];
  double best = clock_of(noise.bits(best_id), to_double(heaviest));
  const std::int32_t* const id = ids.data();
  const Real* const weight = weights.data();
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const double own = to_double(weight[i]);
    const double latest = best * own;  // -log(u) of a clock that would ring when the best one does
    if (never_rings(latest) || i == mode) continue;
    const std::uint32_t bits = noise.bits(id[i]);
    if (rings_late(bits, latest)) continue;
    const double rings = clock_of(bits, own);
    if (rings < best || (rings == best && id[i] < best_id)) {
      best = rings;
      best_id = id[i];
    }
  }
  return best_id;
}

}  // namespace tessera
