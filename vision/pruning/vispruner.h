// VisPruner (Zhang et al., ICCV 2025): part of the budget goes to the patches that the CLS token
// looks at most, the rest to patches that are left when near-duplicates are taken away in rounds.
// Published: per tile, important part r = 0.5, at most 8 duplicates a round, attention and features
// of the layer that the projector reads, ids renumbered.
//
// The official code needs an even number of leftovers and lets the order of equal similarities
// hang on the sort; here an odd list works and equals go by token index. Its NeXT path drops
// newlines and keeps padding: Budget::outcome[kNewline] = kDrop, Budget::padded = kCompete.
#pragma once

#include <algorithm>

#include "engine/core/index.h"
#include "vision/pruning/primitives.h"
#include "vision/pruning/pruner.h"

namespace tessera {

// Removes rows from `list` (rows of unit_rows, in a meaningful order) until `target` are left: each
// round splits the list by parity of the place, and drops the even-placed rows that are most
// similar to an odd-placed one, at most `per_round`. The survivors in their last order; the even
// half of a round comes first, most similar ahead.
inline std::span<const TokenIndex> drop_duplicates(MatrixView unit_rows,
                                                   std::span<const TokenIndex> list,
                                                   std::int64_t target, std::int64_t per_round,
                                                   PruneScratch& scratch) {
  expects(per_round > 0 && target >= 0, "rounds that end");
  const auto room = std::ssize(list);
  auto now = scratch.take<TokenIndex>(room);
  const auto even = scratch.take<TokenIndex>(room), odd = scratch.take<TokenIndex>(room);
  const auto order = scratch.take<std::int64_t>(room);
  std::copy(list.begin(), list.end(), now.begin());
  while (std::ssize(now) > target) {
    const ScratchScope of_round(scratch);
    std::size_t evens = 0, odds = 0;
    for (std::size_t i = 0; i < now.size(); ++i) {
      if (i % 2 == 0) even[evens++] = now[i];
      if (i % 2 == 1) odd[odds++] = now[i];
    }
    const auto matches = bipartite_max(unit_rows, even.first(evens), odd.first(odds), scratch);
    const auto by_similarity = order.first(evens);
    for (std::size_t i = 0; i < evens; ++i) by_similarity[i] = to_index(i);
    std::sort(by_similarity.begin(), by_similarity.end(), [&](std::int64_t a, std::int64_t b) {
      const auto x = to_size(a), y = to_size(b);
      return ranks_before(matches[x].similarity, even[x], matches[y].similarity, even[y]);
    });
    const auto excess = now.size() - to_size(target);
    const std::size_t drop = std::min({to_size(per_round), excess, evens});
    std::size_t out = 0;
    for (std::size_t i = drop; i < evens; ++i) {
      now[out++] = nth(even, by_similarity[i]);
    }
    for (std::size_t i = 0; i < odds; ++i) now[out++] = odd[i];
    now = now.first(out);
  }
  return now;
}

class VisPruner final : public Pruner {
 public:
  struct Settings {
    double important_ratio = 0.5;
    std::int64_t per_round = 8;
  };
  explicit VisPruner(const Settings& settings) : settings_(settings) {}
  std::string_view name() const override { return "vispruner"; }
  std::vector<Hook> hooks(const PrunedModel&) const override {
    return {{HookPoint::kAfterEncoder}};
  }
  std::vector<SignalNeed> needs(const Hook&, const PrunedModel& model,
                                const PruneState&) const override {
    return {{SignalKind::kClsRow, model.feature_layer},
            {SignalKind::kEncoderHidden, model.feature_layer}};
  }

  PrunePlan select(const PruneInputs& in, PruneState&, PruneScratch& scratch) const override {
    expect_merged_cells(name(), in.block);
    const ScratchScope scope(scratch);
    const int layer = in.model.feature_layer;
    const std::int64_t total = in.block.count();
    const Signal& cls = in.signals.per_token(name(), SignalKind::kClsRow, layer, total);
    const Signal& hidden = in.signals.per_token(name(), SignalKind::kEncoderHidden, layer, total);
    const auto attention = column_sums(cls.values, scratch);
    const auto groups = group_candidates(in.block, in.budget, Scope::kPerTile, scratch);
    const auto keeps = kept_by_group(in.budget, groups, Rounding::kHalfEven, scratch);
    const auto chosen = scratch.take<std::uint8_t>(total);
    for (std::int64_t g = 0; g < groups.groups(); ++g) {
      const ScratchScope of_group(scratch);
      const auto tokens = groups.group(g);
      const auto count = std::ssize(tokens);
      const std::int64_t keep = nth(keeps, g);
      const auto important = truncate<std::size_t>(to_double(keep) * settings_.important_ratio);
      const auto scores = values_at(attention, tokens, scratch);
      const auto by_attention = ranked(scores, count, scratch);
      const MatrixView unit_rows = normalised_rows(hidden.values, tokens, scratch);
      const auto different =
          drop_duplicates(unit_rows, by_attention.subspan(important), keep - to_index(important),
                          settings_.per_round, scratch);
      mark(tokens, by_attention.first(important), chosen);
      mark(tokens, different, chosen);
    }
    PrunePlan plan = plan_of(in.block, in.budget, chosen, renumber_unless_3d(in.block));
    plan.source = cls.source;
    return plan;
  }

 private:
  Settings settings_;
};

}  // namespace tessera
