// The seam for what becomes of the drafts after a refused one. Their rows were computed after
// tokens that no longer stand, yet they say more about what comes than nothing does. A redraft
// policy turns each row into the next draft of its position and records the distribution that the
// new draft has, given all that its left neighbours are and ever were.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "engine/decoding/acceptance.h"

namespace tessera {

template <typename Real, typename Random>
class RedraftPolicy {
 public:
  virtual ~RedraftPolicy() = default;
  virtual std::string_view name() const = 0;
  // False: the drafts after the refused one are forgotten, redraft() is never called.
  virtual bool keeps() const { return true; }
  // Whether redraft() reads row.probs; without it the row's logits are enough.
  virtual bool needs_probs() const { return true; }
  // Whether redraft() reads the old draft's distribution.
  virtual bool needs_dists() const { return false; }
  // As AcceptanceRule::describe().
  virtual bool describe(VerifyMethod&) const { return false; }
  // A draft for `position`, distributed as row.probs. `old` (null when there is none) is the draft
  // that stands there now. scratch [2 V].
  virtual std::int32_t redraft(const TargetRow<Real>& row, const DraftDistribution<Real>* old,
                               std::int32_t old_token, std::uint32_t position, Random& random,
                               std::span<Real> scratch) const = 0;
};

}  // namespace tessera
