// Drawing by Gumbel-argmax (Maddison, Tarlow & Minka 2014): the id with the largest logit + noise
// is distributed as the softmax of the logits. The noise of an id at a position is addressed by
// (seed, item; position, id) and by nothing else, above all not by the pass, so that any decoding
// order that sees the same logits draws the same ids.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "engine/core/philox.h"
#include "engine/sampling/fixed_math.h"

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

  static constexpr double kLargest = 22.9;

  double operator()(std::int32_t id) { return value(bits(id)); }

  // The random bits of an id, and the noise they stand for: grows with them.
  std::uint32_t bits(std::int32_t id) {
    const auto lane = static_cast<std::uint32_t>(id) / 4;
    if (lane != lane_) {
      block_ = philox4x32({position_, pass_, static_cast<std::uint32_t>(purpose_), lane}, key_);
      lane_ = lane;
    }
    return block_[static_cast<std::uint32_t>(id) % 4];
  }
  static double value(std::uint32_t bits) {
    return -fixed_log(-fixed_log((static_cast<double>(bits) + 0.5) * 0x1p-32));
  }
  // Bits below this give less noise than `least`, 0 < least < kLargest. Not the tightest bound: a
  // table in steps of a quarter.
  static std::uint32_t fewest_bits(double least) {
    static const std::array<std::uint32_t, 92> table = [] {
      std::array<std::uint32_t, 92> out{};
      for (std::size_t k = 0; k < out.size(); ++k) {
        const double step = static_cast<double>(k) / 4 - 1e-9;
        const double edge = 0x1p32 * fixed_exp(-fixed_exp(-step)) - 2;
        out[k] = edge > 0 ? static_cast<std::uint32_t>(edge) : 0;
      }
      return out;
    }();
    return table[static_cast<std::size_t>(least * 4)];
  }

 private:
  std::array<std::uint32_t, 2> key_;
  std::uint32_t position_;
  std::uint32_t pass_;
  Purpose purpose_;
  std::uint32_t lane_ = 0xffffffffu;
  PhiloxBlock block_ = {};
};

// argmax over the support of logit + noise(id), the lowest id on a tie. `Noise` maps an id to a
// number of at most `largest`; ids that cannot win even then are passed over without drawing.
template <typename Real, typename Noise>
std::int32_t gumbel_argmax(std::span<const std::int32_t> support, std::span<const Real> logits,
                           Noise&& noise, double largest) {
  std::int32_t best_id = support[0];
  if (support.size() == 1) return best_id;
  double best = static_cast<double>(logits[0]) + noise(support[0]);
  for (std::size_t i = 1; i < support.size(); ++i) {
    const double logit = static_cast<double>(logits[i]);
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
  if (support.size() == 1) return support[0];
  std::size_t mode = 0;
  for (std::size_t i = 1; i < support.size(); ++i) {
    if (logits[i] > logits[mode]) mode = i;
  }
  std::int32_t best_id = support[mode];
  double best = static_cast<double>(logits[mode]) + noise(best_id);
  for (std::size_t i = 0; i < support.size(); ++i) {
    const double logit = static_cast<double>(logits[i]);
    const double gap = best - logit;
    if (i == mode || gap > GumbelNoise::kLargest) continue;
    const std::uint32_t bits = noise.bits(support[i]);
    if (gap > 0 && bits < GumbelNoise::fewest_bits(gap)) continue;
    const double value = logit + GumbelNoise::value(bits);
    if (value > best || (value == best && support[i] < best_id)) {
      best = value;
      best_id = support[i];
    }
  }
  return best_id;
}

}  // namespace tessera
