// An image whose drafts branch. Each pass grows a tree after the last committed token, runs all
// its nodes as rows, and walks from the root: where one candidate is accepted the walk goes on
// after it, where all are refused the residual's draw stands and ends the pass, after a leaf the
// row gives one token more.
//
// Without a draft model the distributions of candidates are the rows of the last pass after the
// tokens that it refused, one a position: proactive drafting (SJD-PAC, arXiv 2603.18599) with its
// three faults repaired - the first accepted candidate is taken, candidates are drawn from the
// distribution they are tested with, and a path that was right to its end is followed by a draw
// from its row. After the walk's end the redraft policy turns rows into the next pass's
// distributions: the rows of the path it ended on, then those of the first path.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/core/index.h"
#include "engine/decoding/redraft_policy.h"
#include "engine/decoding/token_sequence.h"
#include "engine/decoding/trees/tree_growth.h"

namespace tessera {

// Borrowed parts. No rule: drafts stand in a line.
template <typename Real, typename Random>
struct TreeParts {
  const SiblingRule<Real, Random>* rule = nullptr;
  TreeDistributionSource<Real>* source = nullptr;  // null: distributions of the last pass
  TreeSettings settings;
};

template <typename Real, typename Random>
class TreeSequence : public TokenSequence<Real, Random> {
 public:
  // As below, verified on the host.
  TreeSequence(const DistributionSettings& dist, const VocabularyGrammar& grammar, std::size_t rows,
               const TreeParts<Real, Random>& parts, const RedraftPolicy<Real, Random>* redraft_policy,
               Drafter<Real, Random>* drafter, Random random, std::size_t item)
      : TreeSequence(dist, grammar, rows, parts, redraft_policy, drafter,
                     parts.source == nullptr ? DraftDistributions::kHere : DraftDistributions::kForgotten,
                     parts.source != nullptr, random, item) {}
  // `rows` of a pass at most. `tail` and `drafter` (may be null) serve the first path,
  // whose distributions are where `distributions` says; `own_dists` of nodes are the tree's.
  TreeSequence(const DistributionSettings& dist, const VocabularyGrammar& grammar, std::size_t rows,
               const TreeParts<Real, Random>& parts, const RedraftPolicy<Real, Random>* redraft_policy,
               Drafter<Real, Random>* drafter, DraftDistributions dists, bool own_dists, Random random,
               std::size_t item)
      : Base(dist, grammar, random, item),
        parts_(parts),
        redraft_policy_(redraft_policy),
        drafter_(drafter),
        window_(parts.source == nullptr ? rows - 1 : 0, grammar, dists),
        tree_(rows, grammar.vocabulary(), own_dists),
        growth_(parts.settings, rows, grammar.vocabulary()),
        order_(rows),
        row_of_(rows),
        allowed_(rows) {
    candidates_.reserve(rows);
    children_.reserve(rows);
    kept_.reserve(rows);
    stack_.reserve(rows);
    meters_.start(total_, rows);
  }

  static std::size_t buffer_bytes(std::size_t vocabulary, std::size_t rows) {
    return DistributionPipeline<Real>::buffer_bytes(to_index(vocabulary)) +
           (rows + 2) * vocabulary * sizeof(Real) + vocabulary * sizeof(std::int32_t);
  }

  DraftWindow<Real>* window() override { return &window_; }
  std::size_t rows() const override { return tree_.size(); }
  std::int32_t row_token(std::size_t row) const { return tree_.token(order_[row]); }
  // The earlier row that this one stands after; row >= 1.
  std::size_t parent(std::size_t row) const { return at(row_of_[at(tree_.parent(order_[row]))]); }

  std::size_t line(std::size_t row, PassLine& out) const override {
    const std::int32_t first = order_[row];
    out.shared = tokens_.size() - 1;
    out.position = out.shared + at(tree_.depth(first));
    out.seen.clear();
    for (std::int32_t node = tree_.parent(first); node != kNoNode; node = tree_.parent(node)) {
      out.seen.push_back(narrow<std::int32_t>(out.shared) + row_of_[at(node)]);
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
    growth_.begin({most_ - 1, line, narrow<std::int32_t>(std::min(most_, this->missing())) - 1},
                  (refusals_ + 1) / (doubts_ + 2));
    return {item_, tokens_, drafts, &window_, &random_, this->before_};
  }

  std::span<const std::int32_t> kept_rows() const override { return kept_; }

  TreeJob<Real> grow() override {
    const DraftWindow<Real>* window = parts_.source == nullptr ? &window_ : nullptr;
    const bool complete = growth_.grow(tree_, window, parts_.rule->candidates(), this->position(),
                                       random_, std::span<Real>(scratch_));
    if (!complete) return {item_, tokens_, &tree_, growth_.wanted()};
    sort_rows();
    return {};
  }

  void verify(RawRows<Real> raw, std::size_t usable) override {
    this->begin_rows();
    HostRows rows(*this, raw);
    settle(rows, usable);
  }

  void settle(Verdicts<Real>& rows, std::size_t usable) override {
    this->begin_pass();
    const std::size_t before = tokens_.size();
    std::int32_t node = 0;
    std::int64_t accepted = 0, tested = 0;
    kept_.clear();
    const bool first = this->first_pass();
    if (!first) kept_.push_back(0);
    bool refused = false;
    while (!refused && !this->done()) {
      if (first || !collect(node, usable)) {
        const std::size_t last = first ? 0 : at(row_of_[at(node)]);
        this->commit(rows.draw(last, tokens_.size()), drafter_);
        break;
      }
      const Verdict<Real> verdict = rows.test(at(row_of_[at(node)]));
      count_test(node, verdict);
      this->commit(verdict, drafter_);
      ++tested;
      refused = verdict.next < 0;
      if (refused) continue;
      ++accepted;
      node = order_[at(verdict.next)];
      kept_.push_back(verdict.next);
    }
    this->count_tests(tested, accepted);
    if (!first) redraft(rows, node, before, usable);
    this->count_pass(tokens_.size() - before);
  }

  void describe(VerifiedItem& item, std::vector<VerifiedRow>& rows,
                std::vector<VerifiedNode>& nodes) const override {
    item.position = this->position();
    for (std::size_t j = 0; j < this->rows(); ++j) {
      const std::int32_t of = order_[j];
      const std::size_t depth = depth_of(of);
      VerifiedRow row{.place = narrow<std::int32_t>(depth)};
      if (const auto forced = forced_at(depth)) row.forced = *forced;
      VerifiedNode node{.token = tree_.token(of)};
      const std::int32_t child = tree_.first_child(of);
      if (child != kNoNode) {
        node.child = row_of_[at(child)];
        row.draft = tree_.token(child);
        row.kind = draft_kind(tree_.dist(of).kind);
        if (tree_.dist(of).guest >= 0) {
          row.kind = DraftKind::kGuest;
          row.dist_row = tree_.dist(of).guest;
        } else if (row.kind == DraftKind::kRow) {
          row.dist_row = window_.dist_row(depth);
        }
      }
      const std::int32_t next_to = of == 0 ? kNoNode : tree_.next_sibling(of);
      if (next_to != kNoNode) node.sibling = row_of_[at(next_to)];
      rows.push_back(row);
      nodes.push_back(node);
    }
  }

 protected:
  using Base = TokenSequence<Real, Random>;
  using Base::item_, Base::meters_, Base::random_, Base::scratch_, Base::tokens_, Base::total_;

  template <typename Integer>
  static std::size_t at(Integer i) {
    return to_size(i);
  }

  std::size_t depth_of(std::int32_t node) const { return at(tree_.depth(node)); }
  // What the grammar forces at a depth of the tree.
  std::optional<std::int32_t> forced_at(std::size_t depth) const {
    return this->grammar().forced(tokens_.size() + depth);
  }
  // What the distribution of a node's candidates says of the first one.
  virtual Real chance_of_first(std::int32_t /*node*/, const Verdict<Real>& verdict) const {
    return verdict.chance;
  }

  // Rows run along first paths, so that they share what is before them.
  void sort_rows() {
    std::size_t row = 0;
    stack_.assign(1, 0);
    while (!stack_.empty()) {
      std::int32_t node = stack_.back();
      stack_.pop_back();
      for (; node != kNoNode; node = tree_.first_child(node)) {
        row_of_[at(node)] = narrow<std::int32_t>(row);
        order_[row++] = node;
        const std::int32_t next_to = node == 0 ? kNoNode : tree_.next_sibling(node);
        if (next_to != kNoNode) stack_.push_back(next_to);
      }
    }
  }

  // The path from the root, whose token stands.
  void stand_before(std::size_t row, std::size_t position,
                    std::vector<std::int32_t>& out) const override {
    Base::stand_before(row, position, out);
    const auto path = std::ssize(out);
    for (std::int32_t node = order_[row]; node > 0; node = tree_.parent(node)) {
      out.push_back(tree_.token(node));
    }
    std::reverse(out.begin() + path, out.end());
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

  TreeParts<Real, Random> parts_;
  const RedraftPolicy<Real, Random>* redraft_policy_;
  Drafter<Real, Random>* drafter_;
  DraftWindow<Real> window_;  // the first path: tokens and distributions
  DraftTree<Real> tree_;
  TreeGrowth<Real> growth_;
  std::vector<std::int32_t> order_, row_of_;  // nodes by row, rows by node
  std::vector<std::int32_t> allowed_;         // on a device: ids that a depth's distribution allows
  std::vector<std::int32_t> candidates_, children_;  // under test

 private:
  // The walk processes a row where it comes to one.
  struct HostRows final : Base::HostVerdicts {
    HostRows(TreeSequence& of, RawRows<Real> rows) : Base::HostVerdicts(of, rows), tree(of) {}

    Verdict<Real> test(std::size_t row) override {
      const std::int32_t node = tree.order_[row];
      this->target = tree.process(tree.tokens_.size(), this->raw(row), row);
      const SiblingDecision<Real> of_drafts = tree.test_candidates(this->target, node);
      Verdict<Real> out;
      out.token = of_drafts.token;
      out.strict = of_drafts.strict;
      out.chance = tree.tree_.dist(node).prob(tree.candidates_[0]);
      out.accepted = of_drafts.chosen >= 0;
      if (out.accepted) out.next = tree.row_of_[at(tree.children_[at(of_drafts.chosen)])];
      return this->by_row(out);
    }
    Redraft<Real> redraft(std::size_t row, std::size_t position) override {
      return tree.redraft_row(tree.order_[row], this->raw(row), position);
    }

    TreeSequence& tree;
  };

  SiblingDecision<Real> test_candidates(const TargetRow<Real>& row, std::int32_t node) {
    const std::optional<std::int32_t> forced = this->grammar().forced(this->position());
    if (forced) {
      const auto found = std::find(candidates_.begin(), candidates_.end(), *forced);
      const bool right = found != candidates_.end();
      return {right ? narrow<std::int32_t>(found - candidates_.begin()) : -1, *forced,
              right ? Real{1} : Real{0}};
    }
    return parts_.rule->accept({row, tree_.dist(node), candidates_, this->position()}, random_,
                              scratch_);
  }

  Redraft<Real> redraft_row(std::int32_t from, const RawRow<Real>& raw, std::size_t position) {
    const TargetRow<Real> row = this->process(position, raw, at(row_of_[at(from)]));
    const std::int32_t old = tree_.first_child(from);
    const DraftDistribution<Real> old_dist = tree_.dist(from);
    const std::int32_t token = redraft_policy_->redraft(
        row, old == kNoNode ? nullptr : &old_dist, old == kNoNode ? -1 : tree_.token(old),
        narrow<std::uint32_t>(position), random_, scratch_);
    return {token, row.probs};
  }

  void count_test(std::int32_t node, const Verdict<Real>& verdict) {
    Decision<Real> test;
    test.accepted = verdict.next >= 0;
    test.strict = test.chance = verdict.strict;
    meters_.count_test(depth_of(node), test);
    doubts_ += 1 - std::min(1.0, to_double(chance_of_first(node, verdict)));
    refusals_ += verdict.next == row_of_[at(children_[0])] ? 0 : 1;
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

  // The distributions and first candidates of the next pass. A window row is read before it is
  // written: what is read lies deeper than what is written by the tokens that this pass brought.
  void redraft(Verdicts<Real>& rows, std::int32_t node, std::size_t before, std::size_t usable) {
    std::size_t kept = 0;
    const std::size_t brought = tokens_.size() - before;
    if (redraft_policy_->keeps() && window_.capacity() > 0) {
      while (kept < std::min(this->missing(), window_.capacity())) {
        const auto depth = narrow<std::int32_t>(brought + kept);
        const std::int32_t from = proposer(node, depth, usable);
        if (from == kNoNode) break;
        if (kept == window_.size()) window_.resize(kept + 1);
        const Redraft<Real> draft = rows.redraft(at(row_of_[at(from)]), before + at(depth));
        allowed_[kept] = draft.allowed;
        window_.replace(kept++, draft);
      }
    }
    window_.resize(kept);
  }

  std::vector<std::int32_t> kept_, stack_;
  std::size_t most_ = 1;
  double doubts_ = 0, refusals_ = 0;  // of first candidates, see TreeGrowth::refusal
};

}  // namespace tessera
