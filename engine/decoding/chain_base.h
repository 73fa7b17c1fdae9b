// A picture whose drafts stand in a line, each behind the one before. Row j of a pass is the law
// behind draft j: row 0 judges draft 0, the last row gives the token behind a window that was right
// as a whole. Tokens before the first refusal stand, the refused one is replaced, and the tail
// turns the rows behind it into the next drafts. Here is the bookkeeping of that; where verdicts
// come from is for chains to say.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>
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

// What became of a position: the token that stands, and its row's figures for the meters.
template <typename Real>
struct Verdict {
  Judgement<Real> judgement;
  RowFigures figures;
  const TargetRow<Real>* row = nullptr;  // null where drafters do not read it
  std::int32_t likeliest = -1;           // of the row, where it is null and a drafter asks
};

template <typename Real, typename Random>
class ChainBase : public PictureSequence<Real, Random> {
 public:
  // `window` rows in a pass at most: one more than the drafts.
  ChainBase(const LawSettings& law, const VocabularyGrammar& grammar, std::size_t window,
            const ChainParts<Real, Random>& parts, DraftLaws laws, Random random, std::size_t item)
      : Base(law, grammar, random, item),
        parts_(parts),
        drafts_(window - 1, grammar, laws),
        row_numbers_(window) {
    std::iota(row_numbers_.begin(), row_numbers_.end(), 0);
    meters_.start(total_, window);
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

  std::span<const std::int32_t> kept_rows() const override { return {row_numbers_.data(), kept_}; }

 protected:
  using Base = PictureSequence<Real, Random>;
  using Base::item_, Base::meters_, Base::random_, Base::tokens_, Base::total_;

  // A pass of `usable` rows. `rows` answers, each row at most once and in order:
  //   test(depth)   the verdict on draft `depth`, which stands for the next token;
  //   last(depth)   the verdict of the row behind all drafts, which were right;
  //   redraft(j, to, last)  makes draft `to` of row j; the last row has no draft behind it.
  template <typename Rows>
  void settle(Rows&& rows, std::size_t usable) {
    drafts_.resize(usable - 1);
    const std::size_t before = tokens_.size(), count = drafts_.size();
    this->begin_pass();
    std::size_t depth = 0;
    bool accepted = true;
    for (; accepted && depth < count && !this->done(); ++depth) {
      const Verdict<Real> verdict = rows.test(depth);
      meters_.count_test(depth, verdict.judgement);
      stand(verdict);
      accepted = verdict.judgement.accepted;
    }
    const std::size_t right = depth - (accepted ? 0 : 1);
    kept_ = this->first_pass() ? 0 : 1 + right;
    this->count_tests(static_cast<std::int64_t>(depth), static_cast<std::int64_t>(right));
    if (this->done()) {
      drafts_.clear();
    } else if (accepted) {
      stand(rows.last(count));
      drafts_.clear();
    } else {
      redraft(rows, before, depth, count);
    }
    this->count_pass(tokens_.size() - before);
  }

  ChainParts<Real, Random> parts_;
  DraftWindow<Real> drafts_;

 private:
  void stand(const Verdict<Real>& verdict) {
    this->commit(verdict.figures, verdict.judgement.token, verdict.row, parts_.drafter,
                 verdict.likeliest);
  }

  // Rows from `first` on become drafts; row j speaks of the position j places behind the `before`
  // tokens that stood when the pass began, which is j - first places behind those that stand now.
  template <typename Rows>
  void redraft(Rows& rows, std::size_t before, std::size_t first, std::size_t count) {
    std::size_t kept = 0;
    const std::size_t room = this->missing();
    if (parts_.tail->keeps()) {
      for (std::size_t j = first; j <= count && kept < room; ++j, ++kept) {
        expects(before + j == tokens_.size() + kept, "a row speaks of its own position");
        rows.redraft(j, kept, j == count);
      }
    }
    drafts_.resize(kept);
  }

  std::vector<std::int32_t> row_numbers_;  // 0, 1, ...
  std::size_t kept_ = 0;
};

}  // namespace tessera
