// One picture while it is decoded: its window of drafts, the judgement of a pass, what stands.
// The part of the decode loop between two forward passes, and all of it that chance enters; a
// template on the scalar and on the source of randomness, so that tests enumerate every outcome of
// this very code.
//
// Row j of a pass is the law behind draft j: row 0 judges draft 0, the last row gives the token
// behind a window that was right as a whole. Tokens before the first refusal stand, the refused one
// is replaced, and the tail turns the rows behind it into the next drafts.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/decoding/drafter.h"
#include "engine/decoding/meters.h"
#include "engine/decoding/tail_policy.h"
#include "engine/sampling/law.h"

namespace tessera {

// Both guidance branches of one row, [V] each; `uncond` is empty without guidance.
template <typename Real>
struct RawRow {
  std::span<const Real> cond, uncond;
};

// Borrowed parts of a method. drafter null: one token a pass.
template <typename Real, typename Random>
struct ChainParts {
  AcceptanceRule<Real, Random>* rule = nullptr;
  const TailPolicy<Real, Random>* tail = nullptr;
  Drafter<Real, Random>* drafter = nullptr;
  double tv_budget = 0;  // of a whole picture, spent evenly along it; 0 = none

  bool needs_laws() const { return rule->needs_laws() || tail->needs_laws(); }
};

template <typename Real, typename Random>
class ChainSequence {
 public:
  // `window` rows in a pass at most: one more than the drafts. `total` tokens in all.
  ChainSequence(const LawSettings& law, std::size_t vocabulary, std::size_t total,
                std::size_t window, const ChainParts<Real, Random>& parts, Random random,
                std::size_t item)
      : law_(law, static_cast<std::int64_t>(vocabulary)),
        parts_(parts),
        random_(random),
        total_(total),
        item_(item),
        drafts_(window - 1, vocabulary, parts.needs_laws()),
        scratch_(vocabulary) {
    tokens_.reserve(total);
    meters_.start(total, window);
  }

  static std::size_t buffer_bytes(std::size_t vocabulary, std::size_t window, bool laws) {
    return LawPipeline<Real>::buffer_bytes(static_cast<std::int64_t>(vocabulary)) +
           (laws ? window : 1) * vocabulary * sizeof(Real);
  }

  const std::vector<std::int32_t>& tokens() const { return tokens_; }
  bool done() const { return tokens_.size() == total_; }
  const DecodeMeters& meters() const { return meters_; }
  // Drafts that the last pass tested, and how many of them were right.
  std::int64_t last_tested() const { return last_tested_; }
  std::int64_t last_accepted() const { return last_accepted_; }

  // Rows of the next pass: the last committed token (none before the first pass) and the drafts.
  std::size_t rows() const { return tokens_.empty() ? 1 : 1 + drafts_.size(); }
  std::span<const std::int32_t> drafts() const { return drafts_.tokens(); }

  // The job that fills the window to `most` rows, no more than are missing.
  DraftJob<Real, Random> draft_job(std::size_t most) {
    const std::size_t missing = total_ - tokens_.size();
    const std::size_t want = std::min({most, missing, drafts_.capacity() + 1}) - 1;
    if (drafts_.size() > want) drafts_.resize(want);
    random_.begin_pass(static_cast<std::uint32_t>(meters_.passes) + 1);
    return {item_, tokens_, want, &drafts_, &random_};
  }

  // Judges a pass: `raw(j)` gives row j. Only the first `usable` rows are looked at, 1 to rows();
  // drafts behind them are forgotten.
  template <typename RawRows>
  void judge(RawRows&& raw, std::size_t usable) {
    drafts_.resize(usable - 1);
    const std::size_t before = tokens_.size(), count = drafts_.size();
    random_.begin_pass(static_cast<std::uint32_t>(meters_.passes) + 1);
    std::size_t depth = 0;
    bool accepted = true;
    for (; accepted && depth < count; ++depth) {
      const TargetRow<Real> row = process(raw(depth));
      const DraftLaw<Real> draft = drafts_.law(depth);
      const Judgement<Real> judgement =
          parts_.rule->judge({row, draft, drafts_.token(depth), position(),
                              static_cast<std::uint32_t>(depth), excess_left()},
                             random_, scratch_);
      meters_.count_test(depth, judgement);
      commit(row, judgement.token);
      accepted = judgement.accepted;
    }
    last_tested_ = static_cast<std::int64_t>(depth);
    last_accepted_ = last_tested_ - (accepted ? 0 : 1);
    if (accepted && !done()) {
      const TargetRow<Real> row = process(raw(count));
      commit(row, random_.race(position(), row.logits));
      drafts_.clear();
    } else {
      redraft(raw, depth, count);
    }
    meters_.count_pass(tokens_.size() - before);
  }

 private:
  // What the picture so far leaves of its share of the budget.
  Real excess_left() const {
    if (parts_.tv_budget <= 0) return Real{1};
    const double share = static_cast<double>(tokens_.size() + 1) / static_cast<double>(total_);
    return static_cast<Real>(std::max(0.0, parts_.tv_budget * share - meters_.excess));
  }

  std::uint32_t position() const { return static_cast<std::uint32_t>(tokens_.size()); }

  // Probabilities cost an exponential an id; a tail that needs none is spared them.
  TargetRow<Real> process(const RawRow<Real>& raw, bool with_probs = true) {
    law_.process(raw.cond, raw.uncond);
    return {{law_.support(), law_.support_logits()},
            with_probs ? law_.probabilities() : std::span<const Real>()};
  }

  void commit(const TargetRow<Real>& row, std::int32_t token) {
    meters_.count_token(row, token, random_.uniform({Purpose::kMeter, position()}));
    tokens_.push_back(token);
    if (parts_.drafter != nullptr) {
      parts_.drafter->commit({item_, tokens_.size() - 1, token, tokens_, &row});
    }
  }

  // Rows from `first` on become drafts; row j speaks of the position j places behind the first one
  // of this pass, which is now j - first places behind the committed tokens.
  template <typename RawRows>
  void redraft(RawRows& raw, std::size_t first, std::size_t count) {
    std::size_t kept = 0;
    const std::size_t room = total_ - tokens_.size();
    const bool with_probs = drafts_.keeps_laws() || parts_.tail->needs_probs();
    if (parts_.tail->keeps()) {
      for (std::size_t j = first; j <= count && kept < room; ++j, ++kept) {
        const TargetRow<Real> row = process(raw(j), with_probs);
        const DraftLaw<Real> old = j < count ? drafts_.law(j) : DraftLaw<Real>{};
        const std::int32_t token =
            parts_.tail->redraft(row, j < count ? &old : nullptr, j < count ? drafts_.token(j) : -1,
                                 position() + static_cast<std::uint32_t>(kept), random_, scratch_);
        drafts_.replace(kept, token, row.probs);
      }
    }
    drafts_.resize(kept);
  }

  LawPipeline<Real> law_;
  ChainParts<Real, Random> parts_;
  Random random_;
  std::size_t total_, item_;
  std::vector<std::int32_t> tokens_;
  DraftWindow<Real> drafts_;
  std::vector<Real> scratch_;  // [V]
  DecodeMeters meters_;
  std::int64_t last_tested_ = 0, last_accepted_ = 0;
};

}  // namespace tessera
