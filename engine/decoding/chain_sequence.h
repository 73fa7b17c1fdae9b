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
#include "engine/decoding/draft_line.h"

namespace tessera {

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
        line_(window - 1, grammar, parts, side),
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

  std::span<const std::int32_t> drafts() const { return line_.drafts().tokens(); }
  DraftWindow<Real>* window() override { return &line_.drafts(); }
  std::size_t rows() const override { return this->first_pass() ? 1 : 1 + line_.drafts().size(); }
  std::size_t line(std::size_t, PassLine& out) const override {
    out.position = out.shared = tokens_.size() - 1;
    out.seen.clear();
    out.tokens.assign(1, tokens_.back());
    out.tokens.insert(out.tokens.end(), line_.drafts().tokens().begin(), line_.drafts().tokens().end());
    return out.tokens.size();
  }

  DraftJob<Real, Random> draft_job(std::size_t most) override {
    const std::size_t want = std::min({most, this->missing(), line_.drafts().capacity() + 1}) - 1;
    if (line_.drafts().size() > want) line_.drafts().resize(want);
    this->begin_pass();
    return {item_, tokens_, want, &line_.drafts(), &random_, this->before_};
  }

  std::span<const std::int32_t> kept_rows() const override { return {row_numbers_.data(), kept_}; }

  void verify(RawRows<Real> raw, std::size_t usable) override {
    this->begin_rows();
    HostRows rows(*this, raw);
    settle(rows, usable);
  }

  void settle(Verdicts<Real>& rows, std::size_t usable) override {
    line_.drafts().resize(usable - 1);
    const std::size_t before = tokens_.size(), count = line_.drafts().size();
    this->begin_pass();
    const auto tested = line_.test_all(rows, 0, meters_, [&](const Verdict<Real>& verdict) {
      this->commit(verdict, parts_.drafter);
      return !this->done();
    });
    kept_ = this->first_pass() ? 0 : 1 + tested.right();
    this->count_tests(to_index(tested.count), to_index(tested.right()));
    if (this->done()) {
      line_.drafts().clear();
    } else if (tested.accepted) {
      this->commit(rows.draw(count, tokens_.size()), parts_.drafter);
      line_.drafts().clear();
    } else {
      line_.keep(rows, 0, before, tested.count, this->missing());
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
        row.draft = line_.drafts().token(depth);
        row.kind = draft_kind(line_.drafts().kind(depth));
        row.dist_row = line_.drafts().dist_row(depth);
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
      return this->by_row(chain.line_.test(
          this->target, depth, before + depth, chain.grammar().forced(before + depth),
          chain.excess_left(), chain.random_, chain.scratch_));
    }
    Redraft<Real> redraft(std::size_t j, std::size_t position) override {
      const TargetRow<Real> row = chain.process(position, this->raw(j), j, chain.line_.needs_probs());
      return chain.line_.redraft(row, j, position, chain.random_, chain.scratch_);
    }

    ChainSequence& chain;
    std::size_t before;  // tokens that were committed when the pass began
  };

  void note_rows() override { fed_.assign(line_.drafts().tokens().begin(), line_.drafts().tokens().end()); }
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

  ChainParts<Real, Random> parts_;
  DraftLine<Real, Random> line_;
  std::vector<std::int32_t> row_numbers_;  // 0, 1, ...
  std::vector<std::int32_t> fed_;          // drafts of the pass, where logits processors read them
  std::size_t kept_ = 0;
};

}  // namespace tessera
