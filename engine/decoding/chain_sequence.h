// A chain that is judged on the host: rows of logits are processed one by one, as far as the drafts
// were right, and those behind a refused one as the tail asks for them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "engine/decoding/chain_base.h"

namespace tessera {

template <typename Real, typename Random>
class ChainSequence final : public ChainBase<Real, Random> {
 public:
  ChainSequence(const LawSettings& law, const VocabularyGrammar& grammar, std::size_t window,
                const ChainParts<Real, Random>& parts, Random random, std::size_t item)
      : Base(law, grammar, window, parts,
             parts.needs_laws() ? DraftLaws::kHere : DraftLaws::kForgotten, random, item) {}

  static std::size_t buffer_bytes(std::size_t vocabulary, std::size_t window, bool laws) {
    return LawPipeline<Real>::buffer_bytes(static_cast<std::int64_t>(vocabulary)) +
           (laws ? window + 1 : 2) * vocabulary * sizeof(Real);
  }

  void judge(RawRows<Real> raw, std::size_t usable) override {
    this->settle(HostRows{*this, raw, tokens_.size(), {}}, usable);
  }

 private:
  using Base = ChainBase<Real, Random>;
  using Base::drafts_, Base::meters_, Base::parts_, Base::random_, Base::tokens_, Base::total_;

  struct HostRows {
    ChainSequence& chain;
    RawRows<Real> raw;
    std::size_t before;  // tokens that stood when the pass began
    TargetRow<Real> row;

    Verdict<Real> test(std::size_t depth) {
      row = chain.process(before + depth, raw(depth));
      return verdict(chain.judge_draft(row, depth));
    }
    Verdict<Real> last(std::size_t depth) {
      row = chain.process(before + depth, raw(depth));
      Judgement<Real> drawn;
      drawn.token = chain.random_.race(chain.position(), row.logits);
      return verdict(drawn);
    }
    void redraft(std::size_t j, std::size_t to, bool is_last) {
      chain.redraft_row(before + j, raw(j), j, to, is_last);
    }
    Verdict<Real> verdict(const Judgement<Real>& judgement) const {
      return {judgement, figures_of(row, judgement.token), &row};
    }
  };

  // What the picture so far leaves of its share of the budget.
  Real excess_left() const {
    if (parts_.tv_budget <= 0) return Real{1};
    return tessera::excess_left<Real>(parts_.tv_budget, tokens_.size() + 1, total_, meters_.excess);
  }

  // Draft `depth`, which stands for the next token, by its row.
  Judgement<Real> judge_draft(const TargetRow<Real>& row, std::size_t depth) {
    const std::int32_t token = drafts_.token(depth);
    const std::optional<std::int32_t> forced = this->grammar().forced(this->position());
    if (forced) return judge_forced<Real>(token, *forced);
    const DraftLaw<Real> draft = drafts_.law(depth);
    return parts_.rule->judge(
        {row, draft, token, this->position(), static_cast<std::uint32_t>(depth), excess_left()},
        random_, this->scratch_);
  }

  void redraft_row(std::size_t position, const RawRow<Real>& raw, std::size_t j, std::size_t to,
                   bool is_last) {
    const bool with_probs = drafts_.keeps_laws() || parts_.tail->needs_probs();
    const TargetRow<Real> row = this->process(position, raw, with_probs);
    const DraftLaw<Real> old = is_last ? DraftLaw<Real>{} : drafts_.law(j);
    const std::int32_t token =
        parts_.tail->redraft(row, is_last ? nullptr : &old, is_last ? -1 : drafts_.token(j),
                             static_cast<std::uint32_t>(position), random_, this->scratch_);
    drafts_.replace(to, token, row.probs);
  }
};

}  // namespace tessera
