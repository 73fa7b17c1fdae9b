// DivPrune (Alvar et al., CVPR 2025, section 3): keeps the tokens that differ most from each other,
// by greedy farthest-point traversal under cosine distance on the embeddings after the projector.
// Published: ratio 0.098 of all tokens as one set, K rounded half to even, ids renumbered.
//
// The paper calls the result exact; the algorithm, there and here, is the greedy heuristic. The
// official code picks a token again once all others are copies of picked ones; here each is picked
// once. It lets newlines compete: Budget::outcome = kCompete does the same.
#pragma once

#include "engine/core/index.h"
#include "vision/pruning/primitives.h"
#include "vision/pruning/pruner.h"

namespace tessera {

class DivPrune final : public Pruner {
 public:
  struct Settings {};
  explicit DivPrune(const Settings& = {}) {}
  std::string_view name() const override { return "divprune"; }
  std::vector<Hook> hooks(const PrunedModel&) const override {
    return {{HookPoint::kAfterProjector}};
  }
  std::vector<SignalNeed> needs(const Hook&, const PrunedModel&, const PruneState&) const override {
    return {{SignalKind::kEmbeddings}};
  }

  PrunePlan select(const PruneInputs& in, PruneState&, PruneScratch& scratch) const override {
    expect_merged_cells(name(), in.block);
    const ScratchScope scope(scratch);
    const Signal& embeddings =
        in.signals.per_token(name(), SignalKind::kEmbeddings, 0, in.block.count());
    const auto groups = group_candidates(in.block, in.budget, Scope::kGlobal, scratch);
    const auto keeps = kept_by_group(in.budget, groups, Rounding::kHalfEven, scratch);
    const auto chosen = scratch.take<std::uint8_t>(in.block.count());
    for (std::int64_t g = 0; g < groups.groups(); ++g) {
      const ScratchScope of_group(scratch);
      const auto tokens = groups.group(g);
      const auto count = std::ssize(tokens);
      const std::int64_t keep = nth(keeps, g);
      if (keep == count) {  // the traversal would list them all
        for (const TokenIndex i : tokens) nth(chosen, i) = 1;
        continue;
      }
      const MatrixView unit_rows = normalised_rows(embeddings.values, tokens, scratch);
      mark(tokens, farthest_points(unit_rows, keep, scratch), chosen);
    }
    return plan_of(in.block, in.budget, chosen, renumber_unless_3d(in.block));
  }
};

}  // namespace tessera
