// FastV (Chen et al., ECCV 2024): before language-model layer K, drops the visual tokens that get
// the least attention in layer K - 1. Published: K = 2, half of the tokens, attention of the last
// prompt token averaged over heads, original position ids.
//
// The paper's score is the mean attention from all other tokens; all official codes read the last
// row only, which made the public figures and is the default. column_mean = 1 averages over the
// rows of all text tokens after the image. Dropping with original ids equals masking the same
// columns in layers K and up. The first official code ranks again at every decode step; here the
// plan is made once, at prefill.
#pragma once

#include "engine/core/index.h"
#include "vision/pruning/primitives.h"
#include "vision/pruning/pruner.h"

namespace tessera {

class FastV final : public Pruner {
 public:
  struct Settings {
    int layer = 2;  // the first that runs without the dropped tokens; at least 1
    bool column_mean = false;
  };
  explicit FastV(const Settings& settings) : settings_(settings) {
    expects(settings.layer >= 1, "there is a layer before");
  }
  std::string_view name() const override { return "fastv"; }
  std::vector<Hook> hooks(const PrunedModel&) const override {
    return {{HookPoint::kBeforeLlm, settings_.layer}};
  }
  std::vector<SignalNeed> needs(const Hook& hook, const PrunedModel&,
                                const PruneState&) const override {
    return {{SignalKind::kAttentionRows, hook.layer - 1,
             settings_.column_mean ? RowChoice::kAllText : RowChoice::kLast}};
  }

  PrunePlan select(const PruneInputs& in, PruneState&, PruneScratch& scratch) const override {
    expect_merged_cells(name(), in.block);
    const ScratchScope scope(scratch);
    const Signal& rows = in.signals.per_token(name(), SignalKind::kAttentionRows, in.hook.layer - 1,
                                              in.block.count());
    const auto attention = column_sums(rows.values, scratch);  // the mean, up to a factor
    const auto groups = group_candidates(in.block, in.budget, Scope::kGlobal, scratch);
    const auto keeps = kept_by_group(in.budget, groups, Rounding::kHalfEven, scratch);
    const auto chosen = scratch.take<std::uint8_t>(in.block.count());
    for (std::int64_t g = 0; g < groups.groups(); ++g) {
      const auto tokens = groups.group(g);
      const auto scores = values_at(attention, tokens, scratch);
      const std::int64_t keep = nth(keeps, g);
      mark(tokens, ranked(scores, keep, scratch), chosen);
    }
    return plan_of(in.block, in.budget, chosen, PositionPolicy::kOriginal);
  }

 private:
  Settings settings_;
};

}  // namespace tessera
