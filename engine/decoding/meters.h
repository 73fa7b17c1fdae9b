// What every decoding run measures about itself, cheaply: passes, tokens a pass, acceptance by
// depth, and two statistics that tell without any reference run whether tokens are distributed as
// the rows they were verified by. For a method that keeps the distribution,
//   z   = sum(log p(token) + entropy) / sqrt(sum of variances) is standard normal (martingale), and
//   PIT = sqrt(n) times the Kolmogorov distance of n values, each uniform in the token's interval
//         of the distribution function with ids in descending order of probability, exceeds 1.36
//         in 5 % of images. In natural order of ids most faults would not show.
// |z| > 4 or PIT > 1.95 on one image is a defect, or a rule that guarantees no distribution.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/core/dist_math.h"
#include "engine/core/index.h"
#include "engine/core/row_tree.h"
#include "engine/decoding/acceptance.h"

namespace tessera {

// What its row says of a token.
struct TokenFigures {
  double probability = 0, entropy = 0;  // nats
};

// Sums over a row, by one of its tokens: all that the meters need of both.
struct RowFigures {
  double probability = 0;       // of the token
  double above = 0;             // of the ids before it in descending order
  double mean = 0, spread = 0;  // of log p and of its square
};
template <typename Real>
RowFigures figures_of(const TargetRow<Real>& row, std::int32_t token);

struct DecodeMeters {
  static constexpr double kSuspectZ = 4.0;
  static constexpr double kCriticalPit = 1.36;  // 5 % of sound images

  std::int64_t passes = 0;
  std::int64_t tokens = 0;
  std::vector<std::int64_t> commit_histogram;  // [window + 1] passes that committed so many tokens
  std::vector<std::int64_t> tested, accepted;  // by depth, [window]
  double strict_chance = 0;  // sum over tests of what the exact rule would have accepted with
  double excess = 0;         // sum over tests of (chance - strict)+: bounds the total variation
  double entropy = 0;        // sum over tokens, nats
  double surprise = 0;       // sum over tokens of log p + entropy
  double variance = 0;       // sum over tokens of the variance of log p
  std::vector<float> transforms;  // PIT values

  // Room for one image: nothing is allocated afterwards.
  void start(std::size_t tokens, std::size_t window);
  double tokens_per_pass() const;
  double acceptance() const;  // accepted / tested, 0 without tests
  double z_score() const;     // 0 if no row had any spread
  double pit_statistic() const;
  double mean_entropy() const;

  // A token that stands, by its row. `uniform` in (0, 1) places it in its interval.
  TokenFigures count_token(const RowFigures& figures, double uniform);
  template <typename Real>
  TokenFigures count_token(const TargetRow<Real>& row, std::int32_t token, double uniform) {
    return count_token(figures_of(row, token), uniform);
  }
  template <typename Real>
  void count_test(std::size_t depth, const Decision<Real>& decision);
  void count_pass(std::size_t committed);
  // Sums another image's meters to these; PIT values are pooled.
  void add(const DecodeMeters& other);
};

template <typename Real>
RowFigures figures_of(const TargetRow<Real>& row, std::int32_t token) {
  const std::span<const std::int32_t> ids = row.logits.support;
  // What stands at temperature 0 by the row without it counts as the likeliest.
  if (!row.warm.empty()) token = ids.front();
  const std::span<const Real> logits = row.logits.logits;
  const Real own = nth(row.probs, token);
  const auto at =
      static_cast<std::size_t>(std::lower_bound(ids.begin(), ids.end(), token) - ids.begin());
  expects(at < ids.size() && ids[at] == token, "a token that stands is allowed by its row");
  // log p of an id is its logit less this.
  const double total = to_double(logits[at]) - log_of_probability(own);
  const auto end = static_cast<std::size_t>(ids.back()) + 1;
  RowSum above(end), mean(end), spread(end);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto id = static_cast<std::size_t>(ids[i]);
    const Real p = row.probs[id];
    if (!(p > 0)) continue;
    if (comes_before(p, ids[i], own, token)) above.add(id, to_double(p));
    const double log_p = to_double(logits[i]) - total;
    const double share = to_double(p) * log_p;
    mean.add(id, share);
    spread.add(id, share * log_p);
  }
  return {to_double(own), above.total(), mean.total(), spread.total()};
}

template <typename Real>
void DecodeMeters::count_test(std::size_t depth, const Decision<Real>& decision) {
  ++tested[depth];
  accepted[depth] += decision.accepted ? 1 : 0;
  strict_chance += to_double(decision.strict);
  if (decision.chance > decision.strict) {
    excess += to_double(decision.chance - decision.strict);
  }
}

}  // namespace tessera
