// The random decisions of decoding, each with an address instead of a turn: key (seed, item),
// counter (position, pass, purpose, lane). The noise of a position (race) leaves the pass out, so
// that every pass meets the same noise; all other decisions are fresh in every pass.
//
// Rules, tails and drafters are templates on the type of this source. Tests put one in its place
// that walks through every outcome and weighs it.
#pragma once

#include <cstdint>
#include <span>

#include "engine/core/acceptance_math.h"
#include "engine/core/error.h"
#include "engine/core/keyed_noise.h"
#include "engine/core/philox.h"
#include "engine/sampling/sampler.h"

namespace tessera {

// What is decided, and at which token of the image.
struct Draw {
  Purpose purpose = Purpose::kAccept;
  std::uint32_t position = 0;
  std::uint32_t lane = 0;  // tells decisions of one purpose and position apart
};

// A processed row: the ids that the distribution allows, ascending, and log-probabilities up to a constant.
template <typename Real>
struct LogitRow {
  std::span<const std::int32_t> support;
  std::span<const Real> logits;
};

class KeyedRandom {
 public:
  KeyedRandom(std::uint64_t seed, std::uint64_t item) : KeyedRandom(philox_key(seed, item)) {}
  explicit KeyedRandom(const std::array<std::uint32_t, 2>& key) : key_(key) {}

  void begin_pass(std::uint32_t pass) { pass_ = pass; }
  std::uint32_t pass() const { return pass_; }
  const std::array<std::uint32_t, 2>& key() const { return key_; }

  // Uniform in (0, 1): 32 random bits and the half between.
  double uniform(const Draw& draw) const {
    const PhiloxBlock block = philox4x32(
        {draw.position, pass_, static_cast<std::uint32_t>(draw.purpose), draw.lane}, key_);
    return uniform_of(block[0]);
  }

  // True with probability min(1, chance / of); never when chance is 0. No division: U of < chance.
  template <typename Real>
  bool accepts(const Draw& draw, Real chance, Real of) {
    return passes(uniform(draw), chance, of);
  }

  // An id, drawn in proportion to its weight. At least one weight is positive.
  template <typename Real>
  std::int32_t weighted(const Draw& draw, std::span<const std::int32_t> ids,
                        std::span<const Real> weights) {
    // Purposes fill the low byte.
    const auto purpose = static_cast<std::uint32_t>(draw.purpose) | draw.lane << 8;
    GumbelNoise noise(key_, draw.position, pass_, static_cast<Purpose>(purpose));
    return first_clock(ids, weights, noise);
  }

  // The winner at a position under the position's own noise: what plain decoding draws there.
  template <typename Real>
  std::int32_t race(std::uint32_t position, const LogitRow<Real>& row) {
    GumbelNoise noise(key_, position, 0, Purpose::kSample);
    return gumbel_argmax(row.support, row.logits, noise);
  }
  // The same by probabilities in place of logits.
  template <typename Real>
  std::int32_t race(std::uint32_t position, std::span<const std::int32_t> ids,
                    std::span<const Real> probs) {
    GumbelNoise noise(key_, position, 0, Purpose::kSample);
    return first_clock(ids, probs, noise);
  }

 private:
  std::array<std::uint32_t, 2> key_;
  std::uint32_t pass_ = 0;
};

}  // namespace tessera
