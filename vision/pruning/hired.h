// HiRED (Arif et al., AAAI 2025): one budget over the tiles of a high-resolution image. The view
// of the whole image gets the part alpha; the rest is split by how much the CLS token of that view,
// in layer 0, looks at what lies under each tile; each tile keeps its patches by CLS attention of
// the layer that the projector reads. Published: rate 0.2 or 0.4, alpha 0.5, floors, ids
// renumbered.
//
// The default follows the paper: attention summed, and a patch of the view counts for the tile it
// really lies under. The official code (parity = 1) counts a binary mask of the top
// (1 - alpha) patches instead, and cuts the raster list into strips of equal length, which for a 2
// x 2 grid are horizontal bands, not quadrants. Its runs also drop newlines (Budget::fate[kNewline]
// = kDrop) and let padding compete, then lose it: the kept number is at most the budget.
#pragma once

#include <algorithm>
#include <numeric>

#include "engine/core/index.h"
#include "vision/pruning/primitives.h"
#include "vision/pruning/pruner.h"
#include "vision/pruning/whole_cells.h"

namespace tessera {

// The place (tile row * tile columns + tile column) under a patch of the base view. The view is the
// whole image squashed to a tile; tiles cut the map on which the image lies between paddings.
inline std::int64_t tile_under(const TileGrid& grid, std::int32_t row, std::int32_t column) {
  const double y = (row + 0.5) / grid.side_rows * grid.image_rows + grid.pad_top;
  const double x = (column + 0.5) / grid.side_columns * grid.image_columns + grid.pad_left;
  const auto tile_row = truncate<std::int32_t>(y / grid.side_rows);
  const auto tile_column = truncate<std::int32_t>(x / grid.side_columns);
  return std::int64_t{std::clamp(tile_row, 0, grid.rows - 1)} * grid.columns +
         std::clamp(tile_column, 0, grid.columns - 1);
}

// floor(budget mass_i / sum of masses), at most sizes[i]; equal shares when nothing has mass.
inline void split_budget(std::int64_t budget, std::span<const double> masses,
                         std::span<const std::int64_t> sizes, std::span<std::int64_t> out) {
  const double sum = std::accumulate(masses.begin(), masses.end(), 0.0);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const double share =
        sum > 0 ? to_double(budget) * masses[i] / sum : to_double(budget) / to_double(out.size());
    out[i] = std::min(round_by(share, Rounding::kFloor), sizes[i]);
  }
}

class Hired final : public Pruner {
 public:
  struct Settings {
    double alpha = 0.5;   // part of the base view
    bool parity = false;  // the official code's split
  };
  explicit Hired(const Settings& settings) : settings_(settings) {}
  std::string_view name() const override { return "hired"; }
  std::vector<Hook> hooks(const PrunedModel&) const override {
    return {{HookPoint::kAfterEncoder}};
  }
  std::vector<SignalNeed> needs(const Hook&, const PrunedModel& model,
                                const PruneState&) const override {
    std::vector<SignalNeed> out = {{SignalKind::kClsRow, model.feature_layer}};
    if (model.tiles > 1) out.push_back({SignalKind::kClsRow, 0});
    return out;
  }

  PrunePlan select(const PruneInputs& in, PruneState&, PruneScratch& scratch) const override {
    expect_only_patches(name(), in.budget);
    const ScratchScope scope(scratch);
    const VisualBlock& block = in.block;
    Budget budget = in.budget;
    budget.scope = Scope::kPerTile;
    if (settings_.parity) budget.padded = TokenOutcome::kCompete;
    const Signal& cls =
        in.signals.per_token(name(), SignalKind::kClsRow, in.model.feature_layer, block.count());
    const auto attention = column_sums(cls.values, scratch);
    const auto groups = group_candidates(block, budget, Scope::kPerTile, scratch);
    const auto keep = budgets_of(in, budget, groups, scratch);
    const auto chosen = scratch.take<std::uint8_t>(block.count());
    for (std::int64_t g = 0; g < groups.groups(); ++g) {
      const ScratchScope of_group(scratch);
      const auto tokens = groups.group(g);
      const auto scores = values_at(attention, tokens, scratch);
      keep_best(block, tokens, scores, nth(keep, g), chosen, scratch);
    }
    // Padding that won a place under parity is lost, as it is there.
    PrunePlan plan = plan_of(block, in.budget, chosen, renumber_unless_3d(block));
    plan.source = cls.source;
    return plan;
  }

 private:
  // Tokens to keep in each group.
  std::span<const std::int64_t> budgets_of(const PruneInputs& in, const Budget& budget,
                                           const CandidateGroups& groups,
                                           PruneScratch& scratch) const {
    const auto total = std::ssize(groups.tokens);
    const std::int64_t wanted = budget.kept_of(total, Rounding::kFloor);
    const auto keep = scratch.take<std::int64_t>(groups.groups());
    const auto sizes = scratch.take<std::int64_t>(groups.groups());
    std::int64_t base = -1, filled = 0;
    for (std::int64_t g = 0; g < groups.groups(); ++g) {
      const auto tokens = groups.group(g);
      nth(sizes, g) = std::ssize(tokens);
      if (tokens.empty()) continue;
      ++filled;
      if (in.block[tokens.front()].tile == in.block.grid.base_tile) base = g;
    }
    if (wanted == total) {
      std::copy(sizes.begin(), sizes.end(), keep.begin());
      return keep;
    }
    if (base < 0 || filled < 2) {  // no view to split by: by size
      const auto masses = scratch.take<double>(groups.groups());
      std::copy(sizes.begin(), sizes.end(), masses.begin());
      split_budget(wanted, masses, sizes, keep);
    } else {
      split_by_view(in, groups, base, wanted, sizes, keep, scratch);
    }
    // Floors may leave nothing of a small budget (ours).
    if (wanted > 0 && std::accumulate(keep.begin(), keep.end(), std::int64_t{0}) == 0) {
      const auto largest = std::max_element(sizes.begin(), sizes.end()) - sizes.begin();
      nth(keep, base < 0 ? largest : base) = 1;
    }
    return keep;
  }

  // The base view's part, and the rest by what it looks at.
  void split_by_view(const PruneInputs& in, const CandidateGroups& groups, std::int64_t base,
                     std::int64_t wanted, std::span<const std::int64_t> sizes,
                     std::span<std::int64_t> keep, PruneScratch& scratch) const {
    const std::int64_t total = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
    const auto at_base = to_size(base);
    keep[at_base] =
        std::min(round_by(settings_.alpha * to_double(wanted), Rounding::kFloor), sizes[at_base]);
    const auto masses = masses_of(in, groups, base, scratch);
    const std::int64_t for_tiles = std::min(wanted - keep[at_base], total - sizes[at_base]);
    split_tiles(in.block, groups, base, for_tiles, masses, sizes, keep, scratch);
  }

  // What each tile gets of the base view's layer-0 attention, by place in the grid.
  std::span<const double> masses_of(const PruneInputs& in, const CandidateGroups& groups,
                                    std::int64_t base, PruneScratch& scratch) const {
    const TileGrid& grid = in.block.grid;
    const Signal& first = in.signals.per_token(name(), SignalKind::kClsRow, 0, in.block.count());
    const auto attention = column_sums(first.values, scratch);
    const auto tokens = groups.group(base);
    const std::int64_t tiles = std::int64_t{grid.rows} * grid.columns;
    const auto masses = scratch.take<double>(tiles);
    if (!settings_.parity) {
      for (const TokenIndex i : tokens) {
        const auto tile = tile_under(grid, in.block[i].row, in.block[i].column);
        nth(masses, tile) += nth(attention, i);
      }
      return masses;
    }
    const auto count = std::ssize(tokens);
    const auto scores = values_at(attention, tokens, scratch);
    const std::int64_t ones = round_by((1 - settings_.alpha) * to_double(count), Rounding::kFloor);
    const std::int64_t strip = std::max(count / tiles, std::int64_t{1});
    for (const TokenIndex place : ranked(scores, ones, scratch)) {
      nth(masses, std::min(place / strip, tiles - 1)) += 1;
    }
    return masses;
  }

  static void split_tiles(const VisualBlock& block, const CandidateGroups& groups,
                          std::int64_t base, std::int64_t budget, std::span<const double> masses,
                          std::span<const std::int64_t> sizes, std::span<std::int64_t> keep,
                          PruneScratch& scratch) {
    const auto tiles = std::ssize(masses);
    const auto tile_sizes = scratch.take<std::int64_t>(tiles);
    const auto tile_keep = scratch.take<std::int64_t>(tiles);
    const auto place_of = [&](std::int64_t g) {
      return block[groups.group(g).front()].tile - block.grid.first_tile;
    };
    for (const bool sizes_first : {true, false}) {
      if (!sizes_first) split_budget(budget, masses, tile_sizes, tile_keep);
      for (std::int64_t g = 0; g < groups.groups(); ++g) {
        if (g == base || groups.group(g).empty()) continue;
        const std::int64_t place = place_of(g);
        expects(place >= 0 && place < tiles, "a tile of the grid");
        const auto tile = to_size(place), at = to_size(g);
        if (sizes_first) tile_sizes[tile] = sizes[at];
        if (!sizes_first) keep[at] = tile_keep[tile];
      }
    }
  }

  Settings settings_;
};

}  // namespace tessera
