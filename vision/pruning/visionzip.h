// VisionZip (Yang et al., CVPR 2025): the patches that the CLS token looks at most stay
// ("dominant"), all others are merged into a few evenly spaced ones ("contextual") by likeness of
// their keys. Published: per tile, 54 + 10, 108 + 20 or 162 + 30 tokens, the CLS token among the
// dominant ones; attention and keys of the layer that the projector reads; ids renumbered.
//
// The paper speaks of averages; the official code adds a centre to the mean of its members, which
// about doubles its length. That is the default, as it made the figures; true_mean = 1 averages.
// A CLS token of the block is a dominant one when it competes (Budget::outcome[kCls] = kCompete),
// and stays next to the budget otherwise. The code puts contextual tokens after the dominant ones;
// here tokens stay in raster order unless dominant_first = 1. Its NeXT path drops newlines.
#pragma once

#include <limits>

#include "engine/core/index.h"
#include "vision/pruning/primitives.h"
#include "vision/pruning/pruner.h"

namespace tessera {

// Places 0, s, 2 s, ... of `rest` tokens, s = max(1, rest / contexts): at most `contexts`, fewer
// when there are not so many tokens.
inline std::int64_t context_stride(std::int64_t rest, std::int64_t contexts) {
  return contexts > 0 && rest / contexts > 1 ? rest / contexts : 1;
}

class VisionZip final : public Pruner {
 public:
  struct Settings {
    double context_ratio = 10.0 / 64;  // of a tile's budget
    std::int64_t contexts = -1;        // a number instead
    bool true_mean = false;
    bool dominant_first = false;
  };
  explicit VisionZip(const Settings& settings) : settings_(settings) {}
  std::string_view name() const override { return "visionzip"; }
  std::vector<Hook> hooks(const PrunedModel&) const override {
    return {{HookPoint::kAfterEncoder}};
  }
  std::vector<SignalNeed> needs(const Hook&, const PrunedModel& model,
                                const PruneState&) const override {
    return {{SignalKind::kClsRow, model.feature_layer},
            {SignalKind::kEncoderKeys, model.feature_layer}};
  }

  PrunePlan select(const PruneInputs& in, PruneState&, PruneScratch& scratch) const override {
    expect_merged_cells(name(), in.block);
    const ScratchScope scope(scratch);
    const int layer = in.model.feature_layer;
    const std::int64_t total = in.block.count();
    const Signal& cls = in.signals.per_token(name(), SignalKind::kClsRow, layer, total);
    const Signal& keys = in.signals.per_token(name(), SignalKind::kEncoderKeys, layer, total);
    const auto attention = column_sums(cls.values, scratch);
    const auto groups = group_candidates(in.block, in.budget, Scope::kPerTile, scratch);
    const auto keeps = kept_by_group(in.budget, groups, Rounding::kHalfEven, scratch);
    const auto chosen = scratch.take<std::uint8_t>(total);
    const auto context = scratch.take<std::uint8_t>(total);
    std::vector<Merge> merges;
    for (std::int64_t g = 0; g < groups.groups(); ++g) {
      const ScratchScope of_group(scratch);
      const auto tokens = groups.group(g);
      const std::int64_t keep = nth(keeps, g);
      const std::int64_t contexts = contexts_of(keep);
      mark_dominant(in.block, tokens, attention, keep - contexts, chosen, scratch);
      merge_rest(keys, tokens, contexts, chosen, context, merges, scratch);
    }
    PrunePlan plan = plan_of(in.block, in.budget, chosen, renumber_unless_3d(in.block));
    plan.source = cls.source;
    plan.merges = std::move(merges);
    if (!plan.merges.empty()) {
      plan.rule = settings_.true_mean ? MergeRule::kMean : MergeRule::kCentrePlusMean;
    }
    if (settings_.dominant_first) put_dominant_first(plan, context);
    return plan;
  }

 private:
  // A budget of one token is a dominant one.
  std::int64_t contexts_of(std::int64_t keep) const {
    const std::int64_t wanted = settings_.contexts >= 0
                                    ? settings_.contexts
                                    : round_half_even(settings_.context_ratio * to_double(keep));
    return std::clamp(wanted, std::int64_t{0}, std::max(keep - 1, std::int64_t{0}));
  }

  static void mark_dominant(const VisualBlock& block, std::span<const TokenIndex> tokens,
                            std::span<const float> attention, std::int64_t count,
                            std::span<std::uint8_t> chosen, PruneScratch& scratch) {
    const auto scores = values_at(attention, tokens, scratch);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      if (block[tokens[i]].kind != TokenKind::kCls) continue;
      scores[i] = std::numeric_limits<float>::infinity();
    }
    mark(tokens, ranked(scores, count, scratch), chosen);
  }

  static void merge_rest(const Signal& keys, std::span<const TokenIndex> tokens,
                         std::int64_t contexts, std::span<std::uint8_t> chosen,
                         std::span<std::uint8_t> context, std::vector<Merge>& merges,
                         PruneScratch& scratch) {
    if (contexts == 0) return;
    const auto rest = scratch.take<TokenIndex>(std::ssize(tokens));
    std::size_t count = 0;
    for (const TokenIndex i : tokens) {
      if (nth(chosen, i) == 0) rest[count++] = i;
    }
    const auto left = to_index(count);
    const std::int64_t stride = context_stride(left, contexts);
    const auto centres = scratch.take<std::int64_t>(std::min(contexts, left));
    const auto others = scratch.take<std::int64_t>(left);
    std::size_t centre_count = 0, other_count = 0;
    for (std::int64_t i = 0; i < left; ++i) {
      const bool centre = i % stride == 0 && centre_count < centres.size();
      (centre ? centres[centre_count++] : others[other_count++]) = i;
    }
    const MatrixView mean = head_mean_rows(keys.values, keys.heads, rest.first(count), scratch);
    const MatrixView unit_rows = normalised_rows(mean, all_places(count, scratch), scratch);
    const auto matches = bipartite_max(unit_rows, others.first(other_count), centres, scratch);
    for (const std::int64_t c : centres) {
      const auto i = to_size(nth(rest, c));
      chosen[i] = context[i] = 1;
    }
    for (std::size_t i = 0; i < other_count; ++i) {
      const std::int64_t centre = nth(centres, matches[i].place);
      merges.push_back({nth(rest, others[i]), nth(rest, centre)});
    }
  }

  static void put_dominant_first(PrunePlan& plan, std::span<const std::uint8_t> context) {
    for (const int part : {0, 1}) {
      for (std::size_t place = 0; place < plan.kept.size(); ++place) {
        const bool is_context = nth(context, plan.kept[place]) != 0;
        if (is_context == (part == 1)) plan.order.push_back(narrow<TokenIndex>(place));
      }
    }
  }

  Settings settings_;
};

}  // namespace tessera
