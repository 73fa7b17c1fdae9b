// A tree whose rows are judged on the host: the walk processes a row where it comes to one.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "engine/decoding/trees/tree_base.h"

namespace tessera {

template <typename Real, typename Random>
class TreeSequence final : public TreeBase<Real, Random> {
 public:
  // As TreeBase.
  TreeSequence(const LawSettings& law, const VocabularyGrammar& grammar, std::size_t rows,
               const TreeParts<Real, Random>& parts, const TailPolicy<Real, Random>* tail,
               Drafter<Real, Random>* drafter, Random random, std::size_t item)
      : Base(law, grammar, rows, parts, tail, drafter,
             parts.source == nullptr ? DraftLaws::kHere : DraftLaws::kForgotten,
             parts.source != nullptr, random, item) {}

  static std::size_t buffer_bytes(std::size_t vocabulary, std::size_t rows) {
    return LawPipeline<Real>::buffer_bytes(static_cast<std::int64_t>(vocabulary)) +
           (rows + 2) * vocabulary * sizeof(Real) + vocabulary * sizeof(std::int32_t);
  }

  TreeJob<Real> grow() override {
    const DraftWindow<Real>* window = parts_.source == nullptr ? &window_ : nullptr;
    const bool complete = growth_.grow(tree_, window, parts_.rule->candidates(), this->position(),
                                       random_, std::span<Real>(this->scratch_));
    if (!complete) return {item_, tokens_, &tree_, growth_.wanted()};
    this->sort_rows();
    return {};
  }

  void judge(RawRows<Real> raw, std::size_t usable) override {
    this->settle(HostRows{*this, raw, {}}, usable);
  }

 private:
  using Base = TreeBase<Real, Random>;
  using Base::at, Base::candidates_, Base::growth_, Base::item_, Base::parts_, Base::random_,
      Base::row_of_, Base::tokens_, Base::tree_, Base::window_;

  struct HostRows {
    TreeSequence& tree;
    RawRows<Real> raw;
    TargetRow<Real> row;

    TreeVerdict<Real> last(std::size_t number) {
      row = tree.process(tree.tokens_.size(), raw(number));
      SiblingJudgement<Real> drawn;
      drawn.token = tree.random_.race(tree.position(), row.logits);
      return {drawn, figures_of(row, drawn.token), 0, &row};
    }
    TreeVerdict<Real> test(std::int32_t node) {
      row = tree.process(tree.tokens_.size(), raw(at(tree.row_of_[at(node)])));
      const SiblingJudgement<Real> judgement = tree.judge_candidates(row, node);
      return {judgement, figures_of(row, judgement.token),
              tree.tree_.law(node).prob(tree.candidates_[0]), &row};
    }
    void redraft(std::int32_t from, std::size_t position, std::size_t to) {
      tree.redraft_row(from, raw(at(tree.row_of_[at(from)])), position, to);
    }
  };

  SiblingJudgement<Real> judge_candidates(const TargetRow<Real>& row, std::int32_t node) {
    const std::optional<std::int32_t> forced = this->grammar().forced(this->position());
    if (forced) {
      const auto found = std::find(candidates_.begin(), candidates_.end(), *forced);
      const bool right = found != candidates_.end();
      return {right ? static_cast<std::int32_t>(found - candidates_.begin()) : -1, *forced,
              right ? Real{1} : Real{0}};
    }
    return parts_.rule->judge({row, tree_.law(node), candidates_, this->position()}, random_,
                              this->scratch_);
  }

  void redraft_row(std::int32_t from, const RawRow<Real>& raw, std::size_t position,
                   std::size_t to) {
    const TargetRow<Real> row = this->process(position, raw);
    const std::int32_t old = tree_.first_child(from);
    const DraftLaw<Real> old_law = tree_.law(from);
    const std::int32_t token = this->tail_->redraft(
        row, old == kNoNode ? nullptr : &old_law, old == kNoNode ? -1 : tree_.token(old),
        static_cast<std::uint32_t>(position), random_, this->scratch_);
    window_.replace(to, token, row.probs);
  }
};

}  // namespace tessera
