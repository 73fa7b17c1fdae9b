// Drafts in a line after a token that stands: how they are tested by their rows, and what becomes of the
// rest. Row 0 verifies draft 0; the row after the last draft gives the token after all of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "engine/core/index.h"
#include "engine/decoding/meters.h"
#include "engine/decoding/redraft_policy.h"
#include "engine/decoding/token_sequence.h"

namespace tessera {

// Borrowed parts of a method. drafter null: one token a pass.
template <typename Real, typename Random>
struct ChainParts {
  AcceptanceRule<Real, Random>* rule = nullptr;
  const RedraftPolicy<Real, Random>* redraft_policy = nullptr;
  Drafter<Real, Random>* drafter = nullptr;
  double tv_budget = 0;  // of a whole image, spent evenly along it; 0 = none

  bool needs_dists() const { return rule->needs_dists() || redraft_policy->needs_dists(); }
};

template <typename Real, typename Random>
class DraftLine {
 public:
  // Room for `capacity` drafts. Their distributions are kept where `side` says, if the parts need them.
  DraftLine(std::size_t capacity, const VocabularyGrammar& grammar,
            const ChainParts<Real, Random>& parts, DraftDistributions side)
      : parts_(parts),
        drafts_(capacity, grammar, parts.needs_dists() ? side : DraftDistributions::kForgotten) {}

  DraftWindow<Real>& drafts() { return drafts_; }
  const DraftWindow<Real>& drafts() const { return drafts_; }

  // Draft `depth`, which stands for a position, by its row. `scratch` [2 V].
  Verdict<Real> test(const TargetRow<Real>& row, std::size_t depth, std::size_t position,
                     std::optional<std::int32_t> forced, Real max_excess, Random& random,
                     std::span<Real> scratch) const {
    const std::int32_t token = drafts_.token(depth);
    const DraftDistribution<Real> draft = drafts_.dist(depth);
    const Decision<Real> of_draft =
        forced ? verify_forced<Real>(token, *forced)
               : parts_.rule->accept({row, draft, token, narrow<std::uint32_t>(position),
                                      narrow<std::uint32_t>(depth), max_excess},
                                     random, scratch);
    Verdict<Real> out;
    out.accepted = of_draft.accepted;
    out.token = of_draft.token;
    out.strict = of_draft.strict;
    out.chance = of_draft.chance;
    return out;
  }

  // Whether redraft() reads probabilities.
  bool needs_probs() const { return drafts_.keeps_dists() || parts_.redraft_policy->needs_probs(); }
  // What the redraft policy makes of row j. The last row has no draft after it.
  Redraft<Real> redraft(const TargetRow<Real>& row, std::size_t j, std::size_t position,
                        Random& random, std::span<Real> scratch) const {
    const bool is_last = j == drafts_.size();
    const DraftDistribution<Real> old = is_last ? DraftDistribution<Real>{} : drafts_.dist(j);
    const std::int32_t token = parts_.redraft_policy->redraft(
        row, is_last ? nullptr : &old, is_last ? -1 : drafts_.token(j),
        narrow<std::uint32_t>(position), random, scratch);
    return {token, row.probs};
  }

  struct Tested {
    std::size_t count = 0;
    bool accepted = true;  // all of them
    std::size_t right() const { return count - (accepted ? 0 : 1); }
  };
  // Tests draft after draft, by the rows of the pass from `first_row` on, until one is refused or
  // `commit`, which is handed each outcome, says that nothing more is wanted.
  template <typename Commit>
  Tested test_all(Verdicts<Real>& rows, std::size_t first_row, DecodeMeters& meters,
                  const Commit& commit) const {
    Tested out;
    bool goes_on = true;
    for (; out.accepted && goes_on && out.count < drafts_.size(); ++out.count) {
      const Verdict<Real> verdict = rows.test(first_row + out.count);
      meters.count_test(out.count, Decision<Real>{verdict.accepted, verdict.token, verdict.strict,
                                                  verdict.chance});
      goes_on = commit(verdict);
      out.accepted = verdict.accepted;
    }
    return out;
  }

  // The line's rows from number `from` on become its drafts, `room` at most; row j speaks of the position
  // j places after `before`.
  void keep(Verdicts<Real>& rows, std::size_t first_row, std::size_t before, std::size_t from,
            std::size_t room) {
    const std::size_t count = drafts_.size();
    std::size_t kept = 0;
    if (parts_.redraft_policy->keeps()) {
      for (std::size_t j = from; j <= count && kept < room; ++j, ++kept) {
        drafts_.replace(kept, rows.redraft(first_row + j, before + j));
      }
    }
    drafts_.resize(kept);
  }

 private:
  ChainParts<Real, Random> parts_;
  DraftWindow<Real> drafts_;
};

}  // namespace tessera
