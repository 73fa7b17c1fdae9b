// Token-level correlation-guided compression (document models, 2024), in an instantiation of our
// own: no code was ever released and thresholds, layers and sampling are not public. Known: a tile
// with many near-duplicate patches, by cosine of attention keys, carries little and keeps few; CLS
// attention of a late and of an early layer say which. Ours: a patch is a duplicate if more than 10
// % of the tile's patches have a key with cosine above 0.9 to its own; a tile keeps ceil(share of
// others x patches), half by CLS attention of the feature layer, the rest by that of layer 0 among
// those left. With a plain budget the number is the budget's.
#pragma once

#include <algorithm>
#include <cmath>

#include "engine/core/index.h"
#include "vision/pruning/primitives.h"
#include "vision/pruning/pruner.h"

namespace tessera {

// Rows of unit length; rows with more than `crowd` other rows of cosine above `alike`.
inline std::int64_t count_duplicates(MatrixView unit_rows, float alike, double crowd,
                                     PruneScratch& scratch) {
  const ScratchScope scope(scratch);
  const auto products = scratch.take<float>(unit_rows.rows * unit_rows.rows);
  gram(unit_rows, products);
  std::int64_t duplicates = 0;
  for (std::int64_t i = 0; i < unit_rows.rows; ++i) {
    std::int64_t close = 0;
    for (std::int64_t j = 0; j < unit_rows.rows; ++j) {
      if (j != i && nth(products, i * unit_rows.rows + j) > alike) ++close;
    }
    if (to_double(close) > crowd) ++duplicates;
  }
  return duplicates;
}

class Correlation final : public Pruner {
 public:
  struct Settings {
    double alike = 0.9;  // cosine
    double crowd = 0.1;  // of a tile's patches
    int local_layer = 0;
  };
  explicit Correlation(const Settings& settings) : settings_(settings) {}
  std::string_view name() const override { return "correlation"; }
  std::vector<Hook> hooks(const PrunedModel&) const override {
    return {{HookPoint::kAfterEncoder}};
  }
  std::vector<SignalNeed> needs(const Hook&, const PrunedModel& model,
                                const PruneState&) const override {
    return {{SignalKind::kClsRow, model.feature_layer},
            {SignalKind::kClsRow, settings_.local_layer},
            {SignalKind::kEncoderKeys, model.feature_layer}};
  }

  PrunePlan select(const PruneInputs& in, PruneState&, PruneScratch& scratch) const override {
    expect_merged_cells(name(), in.block);
    expect_only_patches(name(), in.budget);
    const ScratchScope scope(scratch);
    const int layer = in.model.feature_layer;
    const std::int64_t total = in.block.count();
    const Signal& late = in.signals.per_token(name(), SignalKind::kClsRow, layer, total);
    const Signal& early =
        in.signals.per_token(name(), SignalKind::kClsRow, settings_.local_layer, total);
    const Signal& keys = in.signals.per_token(name(), SignalKind::kEncoderKeys, layer, total);
    const auto late_row = column_sums(late.values, scratch);
    const auto early_row = column_sums(early.values, scratch);
    const auto groups = group_candidates(in.block, in.budget, Scope::kPerTile, scratch);
    const auto keeps = kept_by_group(in.budget, groups, Rounding::kHalfEven, scratch);
    const auto chosen = scratch.take<std::uint8_t>(total);
    for (std::int64_t g = 0; g < groups.groups(); ++g) {
      const ScratchScope of_group(scratch);
      const auto tokens = groups.group(g);
      const std::int64_t keep =
          in.budget.adaptive ? own_number(in.budget, keys, tokens, scratch) : nth(keeps, g);
      take_best(tokens, late_row, (keep + 1) / 2, chosen, scratch);
      take_best(tokens, early_row, keep / 2, chosen, scratch);
    }
    PrunePlan plan = plan_of(in.block, in.budget, chosen, renumber_unless_3d(in.block));
    plan.source = late.source;
    return plan;
  }

 private:
  std::int64_t own_number(const Budget& budget, const Signal& keys,
                          std::span<const TokenIndex> tokens, PruneScratch& scratch) const {
    const auto count = std::ssize(tokens);
    const MatrixView unit_rows = normalised_rows(keys.values, tokens, scratch);
    const std::int64_t duplicates = count_duplicates(unit_rows, to_float(settings_.alike),
                                                     settings_.crowd * to_double(count), scratch);
    // Density times patches is the number of patches that are no duplicates.
    const std::int64_t least = std::min(budget.least, count);
    return std::clamp(count - duplicates, least, std::max(least, std::min(budget.most, count)));
  }

  // Marks the best `count` tokens that are not chosen yet.
  static void take_best(std::span<const TokenIndex> tokens, std::span<const float> row,
                        std::int64_t count, std::span<std::uint8_t> chosen, PruneScratch& scratch) {
    const auto left = scratch.take<TokenIndex>(std::ssize(tokens));
    const auto scores = scratch.take<float>(std::ssize(tokens));
    std::size_t open = 0;
    for (const TokenIndex i : tokens) {
      if (nth(chosen, i) != 0) continue;
      scores[open] = nth(row, i);
      left[open++] = i;
    }
    mark(left, ranked(scores.first(open), count, scratch), chosen);
  }

  Settings settings_;
};

}  // namespace tessera
