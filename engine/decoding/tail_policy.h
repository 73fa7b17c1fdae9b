// The seam for what becomes of the drafts behind a refused one. Their rows were computed behind
// tokens that no longer stand, yet they say more about what comes than nothing does. A tail turns
// each row into the next draft of its position and records the law that the new draft has, given
// all that its left neighbours are and ever were.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "engine/decoding/acceptance.h"

namespace tessera {

template <typename Real, typename Random>
class TailPolicy {
 public:
  virtual ~TailPolicy() = default;
  virtual std::string_view name() const = 0;
  // False: the drafts behind the refused one are forgotten, redraft() is never called.
  virtual bool keeps() const { return true; }
  // Whether redraft() reads row.probs; without it the row's logits are enough.
  virtual bool needs_probs() const { return true; }
  // Whether redraft() reads the old draft's law.
  virtual bool needs_laws() const { return false; }
  // As AcceptanceRule::describe().
  virtual bool describe(JudgeMethod&) const { return false; }
  // A draft for `position`, distributed as row.probs. `old` (null when there is none) is the draft
  // that stands there now. scratch [2 V].
  virtual std::int32_t redraft(const TargetRow<Real>& row, const DraftLaw<Real>* old,
                               std::int32_t old_token, std::uint32_t position, Random& random,
                               std::span<Real> scratch) const = 0;
};

}  // namespace tessera
