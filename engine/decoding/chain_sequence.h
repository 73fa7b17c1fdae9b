// A stream whose drafts stand in a line, each after the one before. Row j of a pass is the
// distribution after draft j: row 0 verifies draft 0, the last row gives the token after a window
// that was right as a whole. Tokens before the first rejection are committed, the rejected one is
// replaced, and the redraft policy turns the rows after it into the next drafts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

#include "engine/core/index.h"
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
class ChainSequence final : public TokenSequence<Real, Random> {
 public:
  // `window` rows in a pass at most: one more than the drafts. Distributions of drafts are kept
  // where `side` says, if the parts need them.
  ChainSequence(const DistributionSettings& dist, const VocabularyGrammar& grammar, std::size_t window,
                const ChainParts<Real, Random>& parts, Random random, std::size_t item,
                DraftDistributions side = DraftDistributions::kHere)
      : Base(dist, grammar, random, item),
        parts_(parts),
        drafts_(window - 1, grammar, parts.needs_dists() ? side : DraftDistributions::kForgotten),
        row_numbers_(window) {
    std::iota(row_numbers_.begin(), row_numbers_.end(), 0);
    if (parts.rule->reads_warm()) this->dist_.keep_warm();
    if (this->processes()) fed_.reserve(window);
    meters_.start(total_, window);
  }

  static std::size_t buffer_bytes(std::size_t vocabulary, std::size_t window, bool dists) {
    return DistributionPipeline<Real>::buffer_bytes(to_index(vocabulary)) +
           (dists ? window + 2 : 2) * vocabulary * sizeof(Real);
  }

  std::span<const std::int32_t> drafts() const { return drafts_.tokens(); }
  DraftWindow<Real>* window() override { return &drafts_; }
  std::size_t rows() const override { return this->first_pass() ? 1 : 1 + drafts_.size(); }
  std::size_t line(std::size_t, PassLine& out) const override {
    out.position = out.shared = tokens_.size() - 1;
    out.seen.clear();
    out.tokens.assign(1, tokens_.back());
    out.tokens.insert(out.tokens.end(), drafts_.tokens().begin(), drafts_.tokens().end());
    return out.tokens.size();
  }

  DraftJob<Real, Random> draft_job(std::size_t most) override {
    const std::size_t want = std::min({most, this->missing(), drafts_.capacity() + 1}) - 1;
    if (drafts_.size() > want) drafts_.resize(want);
    this->begin_pass();
    return {item_, tokens_, want, &drafts_, &random_, this->before_};
  }

  std::span<const std::int32_t> kept_rows() const override { return {row_numbers_.data(), kept_}; }

  void verify(RawRows<Real> raw, std::size_t usable) override {
    this->begin_rows();
    HostRows rows(*this, raw);
    settle(rows, usable);
  }

  void settle(Verdicts<Real>& rows, std::size_t usable) override {
    drafts_.resize(usable - 1);
    const std::size_t before = tokens_.size(), count = drafts_.size();
    this->begin_pass();
    std::size_t depth = 0;
    bool accepted = true;
    for (; accepted && depth < count && !this->done(); ++depth) {
      const Verdict<Real> verdict = rows.test(depth);
      meters_.count_test(
          depth, Decision<Real>{verdict.accepted, verdict.token, verdict.strict, verdict.chance});
      this->commit(verdict, parts_.drafter);
      accepted = verdict.accepted;
    }
    const std::size_t right = depth - (accepted ? 0 : 1);
    kept_ = this->first_pass() ? 0 : 1 + right;
    this->count_tests(to_index(depth), to_index(right));
    if (this->done()) {
      drafts_.clear();
    } else if (accepted) {
      this->commit(rows.draw(count, tokens_.size()), parts_.drafter);
      drafts_.clear();
    } else {
      redraft(rows, before, depth, count);
    }
    this->count_pass(tokens_.size() - before);
  }

  void describe(VerifiedItem& item, std::vector<VerifiedRow>& rows,
                std::vector<VerifiedNode>&) const override {
    item.position = this->position();
    item.budget = std::max(0.0, parts_.tv_budget);
    item.spent = meters_.excess;
    item.total = to_index(total_);
    const std::size_t count = this->rows();
    for (std::size_t depth = 0; depth < count; ++depth) {
      VerifiedRow row{.place = narrow<std::int32_t>(depth)};
      const std::optional<std::int32_t> forced = this->grammar().forced(tokens_.size() + depth);
      if (forced) row.forced = *forced;
      if (depth + 1 < count) {
        row.draft = drafts_.token(depth);
        row.kind = draft_kind(drafts_.kind(depth));
        row.dist_row = drafts_.dist_row(depth);
        if (row.dist_row < 0) {
          row.kind = DraftKind::kGuest;
          row.dist_row = ~row.dist_row;
        }
      }
      rows.push_back(row);
    }
  }

 private:
  using Base = TokenSequence<Real, Random>;
  using Base::item_, Base::meters_, Base::random_, Base::tokens_, Base::total_;

  // Rows are processed one by one, as far as the drafts were right, and those after a rejected one
  // as the redraft policy asks for them.
  struct HostRows final : Base::HostVerdicts {
    HostRows(ChainSequence& of, RawRows<Real> rows)
        : Base::HostVerdicts(of, rows), chain(of), before(of.tokens_.size()) {}

    Verdict<Real> test(std::size_t depth) override {
      this->target = chain.process(before + depth, this->raw(depth), depth);
      const Decision<Real> of_draft = chain.test_draft(this->target, depth);
      Verdict<Real> out;
      out.accepted = of_draft.accepted;
      out.token = of_draft.token;
      out.strict = of_draft.strict;
      out.chance = of_draft.chance;
      return this->by_row(out);
    }
    Redraft<Real> redraft(std::size_t j, std::size_t position) override {
      return chain.redraft_row(position, this->raw(j), j);
    }

    ChainSequence& chain;
    std::size_t before;  // tokens that were committed when the pass began
  };

  void note_rows() override { fed_.assign(drafts_.tokens().begin(), drafts_.tokens().end()); }
  void stand_before(std::size_t row, std::size_t position,
                    std::vector<std::int32_t>& out) const override {
    Base::stand_before(row, position, out);
    out.insert(out.end(), fed_.begin(), fed_.begin() + to_index(row));
  }

  // What the image so far leaves of its share of the budget.
  Real excess_left() const {
    if (parts_.tv_budget <= 0) return Real{1};
    return tessera::excess_left<Real>(parts_.tv_budget, tokens_.size() + 1, total_, meters_.excess);
  }

  // Draft `depth`, which stands for the next token, by its row.
  Decision<Real> test_draft(const TargetRow<Real>& row, std::size_t depth) {
    const std::int32_t token = drafts_.token(depth);
    const std::optional<std::int32_t> forced = this->grammar().forced(this->position());
    if (forced) return verify_forced<Real>(token, *forced);
    const DraftDistribution<Real> draft = drafts_.dist(depth);
    return parts_.rule->accept(
        {row, draft, token, this->position(), narrow<std::uint32_t>(depth), excess_left()}, random_,
        this->scratch_);
  }

  // The last row has no draft after it.
  Redraft<Real> redraft_row(std::size_t position, const RawRow<Real>& raw, std::size_t j) {
    const bool is_last = j == drafts_.size();
    const bool with_probs = drafts_.keeps_dists() || parts_.redraft_policy->needs_probs();
    const TargetRow<Real> row = this->process(position, raw, j, with_probs);
    const DraftDistribution<Real> old = is_last ? DraftDistribution<Real>{} : drafts_.dist(j);
    const std::int32_t token = parts_.redraft_policy->redraft(
        row, is_last ? nullptr : &old, is_last ? -1 : drafts_.token(j),
        narrow<std::uint32_t>(position), random_, this->scratch_);
    return {token, row.probs};
  }

  // Rows from `first` on become drafts; row j speaks of the position j places after the `before`
  // tokens that were committed when the pass began, which is j - first places after those that are
  // now.
  void redraft(Verdicts<Real>& rows, std::size_t before, std::size_t first, std::size_t count) {
    std::size_t kept = 0;
    const std::size_t room = this->missing();
    if (parts_.redraft_policy->keeps()) {
      for (std::size_t j = first; j <= count && kept < room; ++j, ++kept) {
        expects(before + j == tokens_.size() + kept, "a row speaks of its own position");
        drafts_.replace(kept, rows.redraft(j, before + j));
      }
    }
    drafts_.resize(kept);
  }

  ChainParts<Real, Random> parts_;
  DraftWindow<Real> drafts_;
  std::vector<std::int32_t> row_numbers_;  // 0, 1, ...
  std::vector<std::int32_t> fed_;          // drafts of the pass, where logits processors read them
  std::size_t kept_ = 0;
};

}  // namespace tessera
