// Keeps tokens at random: the baseline that every method has to beat at the same budget. A token's
// random number depends on seed, item and its own place in the block alone.
#pragma once

#include "engine/core/index.h"
#include "engine/core/philox.h"
#include "vision/pruning/pruner.h"

namespace tessera {

class RandomPruner final : public Pruner {
 public:
  struct Settings {};
  explicit RandomPruner(const Settings& = {}) {}
  std::string_view name() const override { return "random"; }
  std::vector<Hook> hooks(const PrunedModel&) const override {
    return {{HookPoint::kAfterProjector}};
  }
  std::vector<SignalNeed> needs(const Hook&, const PrunedModel&, const PruneState&) const override {
    return {};
  }

  PrunePlan select(const PruneInputs& in, PruneState&, PruneScratch& scratch) const override {
    expect_merged_cells(name(), in.block);
    const ScratchScope scope(scratch);
    const auto key = philox_key(in.seed, in.item);
    const auto groups = group_candidates(in.block, in.budget, Scope::kGlobal, scratch);
    const auto keeps = kept_by_group(in.budget, groups, Rounding::kHalfEven, scratch);
    const auto chosen = scratch.take<std::uint8_t>(in.block.count());
    const auto random = scratch.take<std::uint64_t>(in.block.count());
    const auto order = scratch.take<TokenIndex>(in.block.count());
    for (std::int64_t g = 0; g < groups.groups(); ++g) {
      const auto tokens = groups.group(g);
      const auto list = order.first(tokens.size());
      for (std::size_t i = 0; i < tokens.size(); ++i) {
        const auto place = low_bits<std::uint32_t>(tokens[i]);
        const auto bits =
            philox4x32({place, 0, static_cast<std::uint32_t>(Purpose::kPrune), 0}, key);
        nth(random, tokens[i]) = std::uint64_t{bits[0]} << 32 | bits[1];
        list[i] = tokens[i];
      }
      const std::int64_t keep = nth(keeps, g);
      std::sort(list.begin(), list.end(), [&](TokenIndex a, TokenIndex b) {
        const auto lot_a = nth(random, a);
        const auto lot_b = nth(random, b);
        return lot_a != lot_b ? lot_a < lot_b : a < b;
      });
      for (const TokenIndex i : list.first(to_size(keep))) {
        nth(chosen, i) = 1;
      }
    }
    return plan_of(in.block, in.budget, chosen, renumber_unless_3d(in.block));
  }
};

}  // namespace tessera
