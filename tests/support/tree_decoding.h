// Drafts that branch over table models: the shipped sequence is driven as the stream loop drives
// it, with tables in place of the model and of the draft model, through every outcome of its random
// decisions. Faults enter as other parts or as a change of a pass's rows.
#pragma once

#include <memory>

#include "engine/decoding/sequence_parts.h"
#include "tests/support/table_decoding.h"

namespace tessera {

// A table's rows, each made once.
template <typename Real>
class TableRowsCache {
 public:
  explicit TableRowsCache(const TableModel<Real>& model) : model_(model) {}
  const Rows<Real>& after(const TokenRow& prefix) {
    const auto found = rows_.find(prefix);
    if (found != rows_.end()) return found->second;
    return rows_.emplace(prefix, rows_after(model_, prefix)).first->second;
  }

 private:
  const TableModel<Real>& model_;
  std::map<TokenRow, Rows<Real>> rows_;
};

// Distributions of a table for the nodes of trees. With `gaps` some nodes get none.
template <typename Real>
class TableDistributions final : public TreeDistributionSource<Real> {
 public:
  TableDistributions(const TableModel<Real>& model, bool gaps)
      : model_(model), gaps_(gaps), cache_(model_), dist_(model.dist, model.grammar()) {}
  std::string_view name() const override { return "table"; }
  void start(std::size_t) override {}
  void answer(std::span<TreeJob<Real>> jobs) override {
    for (const TreeJob<Real>& job : jobs) {
      for (const std::int32_t node : job.wanted) keep(job, node);
    }
  }
  // Nodes that were asked for twice, or before their parent.
  std::size_t misplaced() const { return misplaced_; }

 private:
  void keep(const TreeJob<Real>& job, std::int32_t node) {
    const std::int32_t above = job.tree->parent(node);
    if (job.tree->has_dist(node) || (above >= 0 && !job.tree->has_dist(above))) ++misplaced_;
    context_.assign(job.committed.begin(), job.committed.end());
    const auto known = static_cast<std::ptrdiff_t>(context_.size());
    for (std::int32_t at = node; at > 0; at = job.tree->parent(at)) {
      context_.insert(context_.begin() + known, job.tree->token(at));
    }
    std::size_t hash = context_.size();
    for (const std::int32_t token : context_) hash = 5 * hash + static_cast<std::size_t>(token);
    if (gaps_ && hash % 3 == 0) return;
    const Rows<Real>& rows = cache_.after(context_);
    dist_.process_at(context_.size(), rows.cond, rows.uncond);
    job.tree->keep_dist(node, dist_.probabilities());
  }

  TableModel<Real> model_;
  bool gaps_;
  TableRowsCache<Real> cache_;
  DistributionPipeline<Real> dist_;
  TokenRow context_;
  std::size_t misplaced_ = 0;
};

// What the passes of a run looked like.
struct TreeWatch {
  std::size_t paths = 0, passes = 0, rows = 0;
  std::size_t next_to = 0;       // rows that stand next to another one
  std::size_t beyond = 0;       // rows whose distribution nobody can ask for: the image ends there
  std::size_t max_next_to = 0;  // of one pass
};

// `row_after(context)` in place of the model: gives the rows of one pass to the sequence. The
// contexts are pieced together from the lines of the pass, as the stream loop feeds them.
template <typename Real, typename Random>
std::vector<TokenRow> contexts_of(const TokenSequence<Real, Random>& sequence) {
  const TokenRow& tokens = sequence.tokens();
  if (tokens.empty()) return {{}};
  std::vector<TokenRow> out;
  PassLine line;
  while (out.size() < sequence.rows()) {
    sequence.line(out.size(), line);
    TokenRow context(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(line.shared));
    for (const std::int32_t row : line.seen) {
      context.push_back(out.at(static_cast<std::size_t>(row) + 1 - tokens.size()).back());
    }
    expects(context.size() == line.position, "a line stands at its position");
    for (const std::int32_t token : line.tokens) {
      context.push_back(token);
      out.push_back(context);
    }
  }
  return out;
}

inline void watch_pass(const std::vector<TokenRow>& contexts, std::size_t total, TreeWatch& watch) {
  ++watch.passes;
  watch.rows += contexts.size();
  std::size_t deepest = 0, next_to = 0;
  for (const TokenRow& context : contexts) {
    watch.beyond += context.size() >= total ? 1 : 0;
    deepest = std::max(deepest, context.size());
  }
  if (!contexts[0].empty()) next_to = contexts.size() - (deepest - contexts[0].size() + 1);
  watch.next_to += next_to;
  watch.max_next_to = std::max(watch.max_next_to, next_to);
}

// Drives sequences of any shape to their end. `pass(sequence)` verifies one pass of one of them,
// which has at most `width(sequence)` rows.
template <typename Real, typename Random, typename Width, typename Pass>
void drive_sequences(std::vector<std::unique_ptr<TokenSequence<Real, Random>>>& sequences,
                     const SequenceParts<Real, Random>& parts, Width&& width, Pass&& pass) {
  if (parts.drafter != nullptr) parts.drafter->start(sequences.size());
  if (parts.tree.source != nullptr) parts.tree.source->start(sequences.size());
  for (auto& sequence : sequences) pass(*sequence);
  std::vector<DraftJob<Real, Random>> jobs;
  std::vector<TreeJob<Real>> asked;
  while (true) {
    jobs.clear();
    for (auto& sequence : sequences) {
      if (!sequence->done()) jobs.push_back(sequence->draft_job(width(*sequence)));
    }
    if (jobs.empty()) return;
    if (parts.drafter != nullptr) parts.drafter->extend(jobs);
    while (true) {
      asked.clear();
      for (const auto& job : jobs) {
        const TreeJob<Real> wanted = sequences[job.item]->grow();
        if (!wanted.wanted.empty()) asked.push_back(wanted);
      }
      if (asked.empty()) break;
      parts.tree.source->answer(asked);
    }
    for (const auto& job : jobs) pass(*sequences[job.item]);
  }
}

// Changes the rows of a pass before they are verified; `context` of each.
template <typename Real>
using TreeRowChange = std::function<void(std::vector<Rows<Real>>&, const std::vector<TokenRow>&)>;

template <typename Real, typename Random>
struct TreeOptions {
  std::size_t items = 1;
  TreeRowChange<Real> change = nullptr;
  // Rows of a sequence's next pass at most; empty = all that there is room for.
  std::function<std::size_t(const TokenSequence<Real, Random>&)> width = nullptr;
  TreeWatch* watch = nullptr;
};

// The distribution of all images, one after the other, over every path. `make_parts()` gives parts,
// anything with parts(), a reference if they remember nothing.
template <typename Random = WalkingRandom, typename Real, typename MakeParts>
std::map<TokenRow, double> dist_of_trees(const TableModel<Real>& model, std::size_t rows,
                                       MakeParts make_parts,
                                       const TreeOptions<Real, Random>& options = {}) {
  std::map<TokenRow, double> out;
  OutcomeWalk walk;
  TableRowsCache<Real> table(model);
  const VocabularyGrammar grammar = model.grammar();
  const auto pass = [&](TokenSequence<Real, Random>& sequence) {
    const std::vector<TokenRow> contexts = contexts_of(sequence);
    if (options.watch != nullptr) watch_pass(contexts, grammar.length(), *options.watch);
    if (!options.change) {
      return sequence.verify([&](std::size_t j) { return table.after(contexts[j]).raw(); },
                            contexts.size());
    }
    std::vector<Rows<Real>> changed;
    for (const TokenRow& context : contexts) changed.push_back(table.after(context));
    options.change(changed, contexts);
    sequence.verify([&](std::size_t j) { return changed[j].raw(); }, contexts.size());
  };
  while (walk.next_path()) {
    decltype(auto) owned = make_parts();
    const SequenceParts<Real, Random> parts = owned.parts();
    std::vector<std::unique_ptr<TokenSequence<Real, Random>>> sequences;
    for (std::size_t i = 0; i < options.items; ++i) {
      sequences.push_back(make_sequence(model.dist, grammar, rows, parts, Random(&walk, i), i));
    }
    drive_sequences(
        sequences, parts,
        [&](const auto& sequence) { return options.width ? options.width(sequence) : rows; }, pass);
    TokenRow all;
    for (const auto& sequence : sequences) {
      all.insert(all.end(), sequence->tokens().begin(), sequence->tokens().end());
    }
    out[all] += walk.weight();
    if (options.watch != nullptr) ++options.watch->paths;
  }
  return out;
}

// A method whose drafts branch.
struct TreeShape {
  std::int64_t rows = 4, width = 2, depth = 2;
};
inline DecodeMethod combine_tree(std::string_view tree, std::string_view drafter,
                                 std::string_view redraft_policy, const TreeShape& shape) {
  DecodeMethod method = combine(drafter, redraft_policy, rule_of_tree(tree), shape.rows);
  method.tree = tree;
  method.set(setting::kTreeWidth, static_cast<double>(shape.width));
  method.set(setting::kTreeDepth, static_cast<double>(shape.depth));
  return method;
}

// The distribution of a method of shipped parts; with a source the tree's distributions come from it.
template <typename Real>
std::map<TokenRow, double> tree_dist(const TableModel<Real>& model, const DecodeMethod& method,
                                   TreeDistributionSource<Real>* source = nullptr,
                                   const TreeOptions<Real, WalkingRandom>& options = {}) {
  OwnedParts<Real, WalkingRandom> owned(method, aids_for(model.grammar()));
  if (source != nullptr) owned.set_drafter(nullptr, source);
  return dist_of_trees(
      model, static_cast<std::size_t>(method.window),
      [&]() -> const OwnedParts<Real, WalkingRandom>& { return owned; }, options);
}

}  // namespace tessera
