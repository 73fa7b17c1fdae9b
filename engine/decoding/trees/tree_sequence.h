// A picture whose drafts branch. Each pass grows a tree behind the last committed token, runs all
// its nodes as rows, and walks from the root: where one candidate is accepted the walk goes on
// behind it, where all are refused the residual's draw stands and ends the pass, behind a leaf the
// row gives one token more.
//
// Without a draft model the laws of candidates are the rows of the last pass behind the tokens that
// it refused, one a position: proactive drafting (SJD-PAC, arXiv 2603.18599) with its three faults
// repaired - the first accepted candidate is taken, candidates are drawn from the law they are
// tested with, and a path that was right to its end is followed by a draw from its row. Behind the
// walk's end the tail turns rows into the next pass's laws: the rows of the path it ended on, then
// those of the first path.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/decoding/picture_sequence.h"
#include "engine/decoding/tail_policy.h"
#include "engine/decoding/trees/tree_growth.h"

namespace tessera {

// Borrowed parts. No rule: drafts stand in a line.
template <typename Real, typename Random>
struct TreeParts {
  const SiblingRule<Real, Random>* rule = nullptr;
  TreeLawSource<Real>* source = nullptr;  // null: laws of the last pass
  TreeSettings settings;
};

template <typename Real, typename Random>
class TreeSequence final : public PictureSequence<Real, Random> {
 public:
  // `rows` of a pass at most. `tail` and `drafter` (may be null) serve the first path.
  TreeSequence(const LawSettings& law, const VocabularyGrammar& grammar, std::size_t rows,
               const TreeParts<Real, Random>& parts, const TailPolicy<Real, Random>* tail,
               Drafter<Real, Random>* drafter, Random random, std::size_t item)
      : Base(law, grammar, random, item),
        parts_(parts),
        tail_(tail),
        drafter_(drafter),
        window_(parts.source == nullptr ? rows - 1 : 0, grammar,
                parts.source == nullptr ? DraftLaws::kHere : DraftLaws::kForgotten),
        tree_(rows, grammar.vocabulary(), parts.source != nullptr),
        growth_(parts.settings, rows, grammar.vocabulary()),
        order_(rows),
        row_of_(rows) {
    candidates_.reserve(rows);
    children_.reserve(rows);
    kept_.reserve(rows);
    stack_.reserve(rows);
    meters_.start(total_, rows);
  }

  static std::size_t buffer_bytes(std::size_t vocabulary, std::size_t rows) {
    return LawPipeline<Real>::buffer_bytes(static_cast<std::int64_t>(vocabulary)) +
           (rows + 2) * vocabulary * sizeof(Real) + vocabulary * sizeof(std::int32_t);
  }

  std::size_t rows() const override { return tree_.size(); }
  std::int32_t row_token(std::size_t row) const { return tree_.token(order_[row]); }
  // The earlier row that this one stands behind; row >= 1.
  std::size_t parent(std::size_t row) const { return at(row_of_[at(tree_.parent(order_[row]))]); }

  std::size_t line(std::size_t row, PassLine& out) const override {
    const std::int32_t first = order_[row];
    out.shared = tokens_.size() - 1;
    out.position = out.shared + at(tree_.depth(first));
    out.seen.clear();
    for (std::int32_t node = tree_.parent(first); node != kNoNode; node = tree_.parent(node)) {
      out.seen.push_back(static_cast<std::int32_t>(out.shared) + row_of_[at(node)]);
    }
    std::reverse(out.seen.begin(), out.seen.end());
    out.tokens.clear();
    for (std::int32_t node = first; node != kNoNode; node = tree_.first_child(node)) {
      out.tokens.push_back(tree_.token(node));
    }
    return out.tokens.size();
  }

  DraftJob<Real, Random> draft_job(std::size_t most) override {
    most_ = std::min(most, order_.size());
    const std::size_t drafts = std::min({most_, this->missing(), window_.capacity() + 1}) - 1;
    if (window_.size() > drafts) window_.resize(drafts);
    this->begin_pass();
    tree_.reset(tokens_.back());
    const bool long_line = parts_.settings.by_value && parts_.source == nullptr;
    const std::size_t line = long_line ? most_ - 1 - most_ / 8 : 0;
    growth_.begin(
        {most_ - 1, line, static_cast<std::int32_t>(std::min(most_, this->missing())) - 1},
        (refusals_ + 1) / (doubts_ + 2));
    return {item_, tokens_, drafts, &window_, &random_};
  }

  TreeJob<Real> grow() override {
    const DraftWindow<Real>* window = parts_.source == nullptr ? &window_ : nullptr;
    const bool complete = growth_.grow(tree_, window, parts_.rule->candidates(), this->position(),
                                       random_, std::span<Real>(scratch_));
    if (!complete) return {item_, tokens_, &tree_, growth_.wanted()};
    sort_rows();
    return {};
  }

  void judge(RawRows<Real> raw, std::size_t usable) override {
    this->begin_pass();
    const std::size_t before = tokens_.size();
    std::int32_t node = 0;
    std::int64_t accepted = 0, tested = 0;
    kept_.clear();
    const bool first = this->first_pass();
    if (!first) kept_.push_back(0);
    bool refused = false;
    while (!refused && !this->done()) {
      const TargetRow<Real> row =
          this->process(tokens_.size(), raw(first ? 0 : at(row_of_[at(node)])));
      if (first || !collect(node, usable)) {
        this->commit(row, random_.race(this->position(), row.logits), drafter_);
        break;
      }
      const SiblingJudgement<Real> judgement = judge_candidates(row, node);
      count_test(node, judgement);
      this->commit(row, judgement.token, drafter_);
      ++tested;
      refused = judgement.chosen < 0;
      if (refused) continue;
      ++accepted;
      node = children_[at(judgement.chosen)];
      kept_.push_back(row_of_[at(node)]);
    }
    this->count_tests(tested, accepted);
    if (!first) redraft(raw, node, before, usable);
    this->count_pass(tokens_.size() - before);
  }

  std::span<const std::int32_t> kept_rows() const override { return kept_; }

 private:
  using Base = PictureSequence<Real, Random>;
  using Base::item_, Base::meters_, Base::random_, Base::scratch_, Base::tokens_, Base::total_;

  template <typename Integer>
  static std::size_t at(Integer i) {
    return static_cast<std::size_t>(i);
  }

  // Rows run along first paths, so that they share what is before them.
  void sort_rows() {
    std::size_t row = 0;
    stack_.assign(1, 0);
    while (!stack_.empty()) {
      std::int32_t node = stack_.back();
      stack_.pop_back();
      for (; node != kNoNode; node = tree_.first_child(node)) {
        row_of_[at(node)] = static_cast<std::int32_t>(row);
        order_[row++] = node;
        const std::int32_t beside = node == 0 ? kNoNode : tree_.next_sibling(node);
        if (beside != kNoNode) stack_.push_back(beside);
      }
    }
  }

  // Children whose rows can be used; false if there are none.
  bool collect(std::int32_t node, std::size_t usable) {
    candidates_.clear();
    children_.clear();
    for (std::int32_t c = tree_.first_child(node); c != kNoNode; c = tree_.next_sibling(c)) {
      if (at(row_of_[at(c)]) >= usable) continue;
      children_.push_back(c);
      candidates_.push_back(tree_.token(c));
    }
    return !children_.empty();
  }

  SiblingJudgement<Real> judge_candidates(const TargetRow<Real>& row, std::int32_t node) {
    const std::optional<std::int32_t> forced = this->grammar().forced(this->position());
    if (forced) {
      const auto found = std::find(candidates_.begin(), candidates_.end(), *forced);
      const bool right = found != candidates_.end();
      return {right ? static_cast<std::int32_t>(found - candidates_.begin()) : -1, *forced,
              right ? Real{1} : Real{0}};
    }
    return parts_.rule->judge({row, tree_.law(node), candidates_, this->position()}, random_,
                              scratch_);
  }

  void count_test(std::int32_t node, const SiblingJudgement<Real>& judgement) {
    Judgement<Real> test;
    test.accepted = judgement.chosen >= 0;
    test.strict = test.chance = judgement.strict;
    meters_.count_test(at(tree_.depth(node)), test);
    doubts_ += 1 - std::min(1.0, static_cast<double>(tree_.law(node).prob(candidates_[0])));
    refusals_ += judgement.chosen == 0 ? 0 : 1;
  }

  // The node of a depth whose row proposes best: below `node`, the walk's end, else on the first
  // path.
  std::int32_t proposer(std::int32_t node, std::int32_t depth, std::size_t usable) const {
    for (const std::int32_t start : {node, 0}) {
      std::int32_t at_depth = start;
      while (at_depth != kNoNode && tree_.depth(at_depth) < depth) {
        at_depth = tree_.first_child(at_depth);
      }
      if (at_depth != kNoNode && at(row_of_[at(at_depth)]) < usable) return at_depth;
    }
    return kNoNode;
  }

  // The laws and first candidates of the next pass. A window row is read before it is written: what
  // is read lies deeper than what is written by the tokens that this pass brought.
  void redraft(RawRows<Real> raw, std::int32_t node, std::size_t before, std::size_t usable) {
    std::size_t kept = 0;
    const std::size_t brought = tokens_.size() - before;
    if (tail_->keeps() && window_.capacity() > 0) {
      while (kept < std::min(this->missing(), window_.capacity())) {
        const auto depth = static_cast<std::int32_t>(brought + kept);
        const std::int32_t from = proposer(node, depth, usable);
        if (from == kNoNode) break;
        const std::size_t position = before + at(depth);
        const TargetRow<Real> row = this->process(position, raw(at(row_of_[at(from)])));
        const std::int32_t old = tree_.first_child(from);
        const DraftLaw<Real> old_law = tree_.law(from);
        const std::int32_t token = tail_->redraft(
            row, old == kNoNode ? nullptr : &old_law, old == kNoNode ? -1 : tree_.token(old),
            static_cast<std::uint32_t>(position), random_, scratch_);
        if (kept == window_.size()) window_.resize(kept + 1);
        window_.replace(kept++, token, row.probs);
      }
    }
    window_.resize(kept);
  }

  TreeParts<Real, Random> parts_;
  const TailPolicy<Real, Random>* tail_;
  Drafter<Real, Random>* drafter_;
  DraftWindow<Real> window_;  // the first path: tokens and laws
  DraftTree<Real> tree_;
  TreeGrowth<Real> growth_;
  std::vector<std::int32_t> order_, row_of_;  // nodes by row, rows by node
  std::vector<std::int32_t> candidates_, children_, kept_, stack_;
  std::size_t most_ = 1;
  double doubts_ = 0, refusals_ = 0;  // of first candidates, see TreeGrowth::refusal
};

}  // namespace tessera
