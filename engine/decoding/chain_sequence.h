// A picture whose drafts stand in a line, each behind the one before. Row j of a pass is the law
// behind draft j: row 0 judges draft 0, the last row gives the token behind a window that was right
// as a whole. Tokens before the first refusal stand, the refused one is replaced, and the tail
// turns the rows behind it into the next drafts.
#pragma once

#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

#include "engine/decoding/picture_sequence.h"
#include "engine/decoding/tail_policy.h"

namespace tessera {

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
class ChainSequence final : public PictureSequence<Real, Random> {
 public:
  // `window` rows in a pass at most: one more than the drafts.
  ChainSequence(const LawSettings& law, const VocabularyGrammar& grammar, std::size_t window,
                const ChainParts<Real, Random>& parts, Random random, std::size_t item)
      : Base(law, grammar, random, item),
        parts_(parts),
        drafts_(window - 1, grammar, parts.needs_laws()),
        row_numbers_(window) {
    std::iota(row_numbers_.begin(), row_numbers_.end(), 0);
    meters_.start(total_, window);
  }

  static std::size_t buffer_bytes(std::size_t vocabulary, std::size_t window, bool laws) {
    return LawPipeline<Real>::buffer_bytes(static_cast<std::int64_t>(vocabulary)) +
           (laws ? window : 1) * vocabulary * sizeof(Real);
  }

  std::span<const std::int32_t> drafts() const { return drafts_.tokens(); }
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

  void judge(RawRows<Real> raw, std::size_t usable) override {
    drafts_.resize(usable - 1);
    const std::size_t before = tokens_.size(), count = drafts_.size();
    this->begin_pass();
    std::size_t depth = 0;
    bool accepted = true;
    for (; accepted && depth < count && !this->done(); ++depth) {
      const TargetRow<Real> row = this->process(before + depth, raw(depth));
      const Judgement<Real> judgement = judge_draft(row, depth);
      meters_.count_test(depth, judgement);
      this->commit(row, judgement.token, parts_.drafter);
      accepted = judgement.accepted;
    }
    const std::size_t right = depth - (accepted ? 0 : 1);
    kept_ = this->first_pass() ? 0 : 1 + right;
    this->count_tests(static_cast<std::int64_t>(depth), static_cast<std::int64_t>(right));
    if (this->done()) {
      drafts_.clear();
    } else if (accepted) {
      const TargetRow<Real> row = this->process(before + count, raw(count));
      this->commit(row, random_.race(this->position(), row.logits), parts_.drafter);
      drafts_.clear();
    } else {
      redraft(raw, before, depth, count);
    }
    this->count_pass(tokens_.size() - before);
  }

  std::span<const std::int32_t> kept_rows() const override { return {row_numbers_.data(), kept_}; }

 private:
  using Base = PictureSequence<Real, Random>;
  using Base::item_, Base::meters_, Base::random_, Base::scratch_, Base::tokens_, Base::total_;

  // What the picture so far leaves of its share of the budget.
  Real excess_left() const {
    if (parts_.tv_budget <= 0) return Real{1};
    const double share = static_cast<double>(tokens_.size() + 1) / static_cast<double>(total_);
    return static_cast<Real>(std::max(0.0, parts_.tv_budget * share - meters_.excess));
  }

  // Draft `depth`, which stands for the next token, by its row.
  Judgement<Real> judge_draft(const TargetRow<Real>& row, std::size_t depth) {
    const std::int32_t token = drafts_.token(depth);
    const std::optional<std::int32_t> forced = this->grammar().forced(this->position());
    if (forced) return judge_forced<Real>(token, *forced);
    const DraftLaw<Real> draft = drafts_.law(depth);
    return parts_.rule->judge(
        {row, draft, token, this->position(), static_cast<std::uint32_t>(depth), excess_left()},
        random_, scratch_);
  }

  // Rows from `first` on become drafts; row j speaks of the position j places behind the `before`
  // tokens that stood when the pass began, which is j - first places behind those that stand now.
  void redraft(RawRows<Real> raw, std::size_t before, std::size_t first, std::size_t count) {
    std::size_t kept = 0;
    const std::size_t room = this->missing();
    const bool with_probs = drafts_.keeps_laws() || parts_.tail->needs_probs();
    if (parts_.tail->keeps()) {
      for (std::size_t j = first; j <= count && kept < room; ++j, ++kept) {
        const std::size_t position = before + j;
        expects(position == tokens_.size() + kept, "a row speaks of its own position");
        const TargetRow<Real> row = this->process(position, raw(j), with_probs);
        const DraftLaw<Real> old = j < count ? drafts_.law(j) : DraftLaw<Real>{};
        const std::int32_t token =
            parts_.tail->redraft(row, j < count ? &old : nullptr, j < count ? drafts_.token(j) : -1,
                                 static_cast<std::uint32_t>(position), random_, scratch_);
        drafts_.replace(kept, token, row.probs);
      }
    }
    drafts_.resize(kept);
  }

  ChainParts<Real, Random> parts_;
  DraftWindow<Real> drafts_;
  std::vector<std::int32_t> row_numbers_;  // 0, 1, ...
  std::size_t kept_ = 0;
};

}  // namespace tessera
