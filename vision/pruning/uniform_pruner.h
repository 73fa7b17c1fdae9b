// Keeps tokens at even distances in raster order: of n tokens the ones at floor((i + 1/2) n / K).
// The second baseline next to random choices; knows nothing of the image.
#pragma once

#include "engine/core/index.h"
#include "vision/pruning/pruner.h"

namespace tessera {

class UniformPruner final : public Pruner {
 public:
  struct Settings {};
  explicit UniformPruner(const Settings& = {}) {}
  std::string_view name() const override { return "uniform"; }
  std::vector<Hook> hooks(const PrunedModel&) const override {
    return {{HookPoint::kAfterProjector}};
  }
  std::vector<SignalNeed> needs(const Hook&, const PrunedModel&, const PruneState&) const override {
    return {};
  }

  PrunePlan select(const PruneInputs& in, PruneState&, PruneScratch& scratch) const override {
    expect_merged_cells(name(), in.block);
    const ScratchScope scope(scratch);
    const auto groups = group_candidates(in.block, in.budget, Scope::kGlobal, scratch);
    const auto keeps = kept_by_group(in.budget, groups, Rounding::kHalfEven, scratch);
    const auto chosen = scratch.take<std::uint8_t>(in.block.count());
    for (std::int64_t g = 0; g < groups.groups(); ++g) {
      const auto tokens = groups.group(g);
      const auto count = std::ssize(tokens);
      const std::int64_t keep = nth(keeps, g);
      for (std::int64_t i = 0; i < keep; ++i) {
        const std::int64_t place = (2 * i + 1) * count / (2 * keep);
        nth(chosen, nth(tokens, place)) = 1;
      }
    }
    return plan_of(in.block, in.budget, chosen, renumber_unless_3d(in.block));
  }
};

}  // namespace tessera
