// ToMe (Bolya et al., ICLR 2023, section 3): merges tokens inside every encoder layer, between
// attention and MLP. Tokens at even places look for the most similar key among tokens at odd
// places; the r most similar pairs become their mean, weighted by how many tokens each stands for.
// Published: metric = keys averaged over heads, CLS never a source, constant r; from then on
// ln(size) is added to the logits of a key (the runtime's part; VisualToken::size).
//
// Output order [even ones left, ascending][odd ones]; parity goes by that order in the next layer,
// so plans carry it. Here r follows from the budget: what is left to merge over the layers left, at
// most half of the tokens a layer (a budget below that is not reached; the plan says what was).
// With r > 0 in the settings: that many in every layer, whatever the budget. The official code
// orders even tokens by similarity when there is no CLS; here they always ascend.
#pragma once

#include <algorithm>

#include "engine/core/index.h"
#include "vision/pruning/primitives.h"
#include "vision/pruning/pruner.h"

namespace tessera {

class Tome final : public Pruner {
 public:
  struct Settings {
    std::int64_t r = 0;
  };
  explicit Tome(const Settings& settings) : settings_(settings) {}
  std::string_view name() const override { return "tome"; }

  std::vector<Hook> hooks(const PrunedModel& model) const override {
    std::vector<Hook> out;
    for (int layer = 0; layer <= model.feature_layer; ++layer) {
      out.push_back({HookPoint::kInEncoderBlock, layer});
    }
    return out;
  }
  std::vector<SignalNeed> needs(const Hook& hook, const PrunedModel&,
                                const PruneState&) const override {
    return {{SignalKind::kEncoderKeys, hook.layer}};
  }

  PrunePlan select(const PruneInputs& in, PruneState& state, PruneScratch& scratch) const override {
    expect_merged_cells(name(), in.block);
    expect_only_patches(name(), in.budget);
    const ScratchScope scope(scratch);
    const Signal& keys =
        in.signals.per_token(name(), SignalKind::kEncoderKeys, in.hook.layer, in.block.count());
    Budget budget = in.budget;
    budget.scope = Scope::kPerTile;
    const auto groups = group_candidates(in.block, budget, Scope::kPerTile, scratch);
    if (state.numbers.empty()) {
      const auto keeps = kept_by_group(budget, groups, Rounding::kHalfEven, scratch);
      state.numbers.assign(keeps.begin(), keeps.end());
    }
    expects(std::ssize(state.numbers) == groups.groups(), "the state belongs to the block");
    const auto chosen = scratch.take<std::uint8_t>(in.block.count(), 1);
    std::vector<Merge> merges;
    for (std::int64_t g = 0; g < groups.groups(); ++g) {
      const ScratchScope of_group(scratch);
      const auto tokens = groups.group(g);
      const auto count = std::ssize(tokens);
      const std::int64_t to_go = in.model.feature_layer - in.hook.layer + 1;
      const std::int64_t excess = std::max(count - nth(state.numbers, g), std::int64_t{0});
      const std::int64_t wanted =
          settings_.r > 0 ? settings_.r : (excess + to_go - 1) / std::max(to_go, std::int64_t{1});
      if (!tokens.empty()) merge_tile(in, keys, tokens, wanted, merges, scratch);
    }
    // Padding that leaves changes what others attend to: it stays while nothing has to go.
    if (merges.empty()) return whole_plan(in.block, in.budget, renumber_unless_3d(in.block));
    for (const Merge& merge : merges) nth(chosen, merge.source) = 0;
    PrunePlan plan = plan_of(in.block, in.budget, chosen, renumber_unless_3d(in.block));
    plan.rule = MergeRule::kSizeWeightedMean;
    plan.merges = std::move(merges);
    put_odd_after(in, plan, scratch);
    return plan;
  }

 private:
  // The tokens of a tile that stay or compete, by place; what the encoder runs on.
  static std::span<const TokenIndex> tokens_of_tile(const PruneInputs& in, std::int32_t tile,
                                                    PruneScratch& scratch) {
    const auto list = scratch.take<TokenIndex>(in.block.count());
    std::size_t count = 0;
    for (TokenIndex i = 0; i < in.block.count(); ++i) {
      if (in.block[i].tile == tile && outcome_of(in.block[i], in.budget) != TokenOutcome::kDrop) {
        list[count++] = i;
      }
    }
    return list.first(count);
  }

  static bool may_merge(const PruneInputs& in, TokenIndex i) {
    return in.block[i].kind == TokenKind::kPatch &&
           outcome_of(in.block[i], in.budget) == TokenOutcome::kCompete;
  }

  static void merge_tile(const PruneInputs& in, const Signal& keys,
                         std::span<const TokenIndex> tokens, std::int64_t wanted,
                         std::vector<Merge>& merges, PruneScratch& scratch) {
    const auto all = tokens_of_tile(in, in.block[tokens.front()].tile, scratch);
    const MatrixView unit_rows =
        normalised_rows(head_mean_rows(keys.values, keys.heads, all, scratch),
                        all_places(all.size(), scratch), scratch);
    const auto even = scratch.take<std::int64_t>(std::ssize(all));
    const auto odd = scratch.take<std::int64_t>(std::ssize(all));
    std::size_t evens = 0, odds = 0, fixed = 0;
    for (std::size_t place = 0; place < all.size(); ++place) {
      if (!may_merge(in, all[place])) {
        ++fixed;
      } else if (place % 2 == 0) {
        even[evens++] = to_index(place);
      } else {
        odd[odds++] = to_index(place);
      }
    }
    if (odds == 0) return;
    const auto matches = bipartite_max(unit_rows, even.first(evens), odd.first(odds), scratch);
    const auto similarity = scratch.take<float>(to_index(evens));
    for (std::size_t i = 0; i < evens; ++i) similarity[i] = matches[i].similarity;
    const auto most = to_index((all.size() - fixed) / 2);
    for (const TokenIndex i : ranked(similarity, std::min(wanted, most), scratch)) {
      const auto at = to_size(i);
      const auto to = nth(odd, matches[at].place);
      merges.push_back({nth(all, even[at]), nth(all, to)});
    }
  }

  // Within each tile: tokens of even place, then those of odd place. Tiles lie one after the
  // other, as the encoder runs them.
  static void put_odd_after(const PruneInputs& in, PrunePlan& plan, PruneScratch& scratch) {
    const auto odd = scratch.take<std::uint8_t>(in.block.count());
    std::int32_t lowest = 0, highest = 0;
    for (TokenIndex i = 0; i < in.block.count(); ++i) {
      lowest = std::min(lowest, in.block[i].tile);
      highest = std::max(highest, in.block[i].tile);
    }
    for (std::int32_t tile = lowest; tile <= highest; ++tile) {
      const ScratchScope of_tile(scratch);
      const auto all = tokens_of_tile(in, tile, scratch);
      for (std::size_t place = 0; place < all.size(); ++place) {
        nth(odd, all[place]) = place % 2;
      }
      for (const int parity : {0, 1}) {
        for (std::size_t k = 0; k < plan.kept.size(); ++k) {
          const TokenIndex i = plan.kept[k];
          if (in.block[i].tile == tile && nth(odd, i) == parity) {
            plan.order.push_back(narrow<TokenIndex>(k));
          }
        }
      }
    }
  }

  Settings settings_;
};

}  // namespace tessera
