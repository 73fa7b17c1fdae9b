// SparseVLM+ (Zhang et al., ICML 2025, version 2 of the code): text tokens that have much to do
// with the image rate the visual tokens in three language-model layers. Raters, once, from the
// embeddings: softmax over text tokens of V E^T (no scale), mean over visual tokens; those above
// the mean. After layers 2, 6 and 15: attention of raters to visual columns in the heads with most
// of it, each weight divided by the logit that constant queries and keys would give at the same two
// positions (what the rotation alone prefers), mean. Published: counts by target 192 -> 300, 200,
// 118; 128 -> 238, 108, 60; 96 -> 246, 54, 28; 64 -> 66, 34, 20 of 576 tokens; 14 heads; original
// ids.
//
// Version 1 recycles dropped tokens by a clustering with random ties and renumbers; not here. The
// paper takes counts from the rank of the attention; the code uses the lists. Other budgets lie on
// straight lines between listed ones (ours). The official 14 is half of a 28-head model: here
// half of the heads. The divisor may reach zero far apart; it is held at 5 % of its largest value.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>

#include "engine/core/index.h"
#include "vision/pruning/primitives.h"
#include "vision/pruning/pruner.h"

namespace tessera {

inline constexpr std::size_t kSparseVlmStages = 3;

// Tokens after each stage for a target of `budget` of `total` tokens.
inline std::array<std::int64_t, kSparseVlmStages> sparsevlm_counts(std::int64_t total,
                                                                   std::int64_t budget) {
  struct Knot {
    double target;
    std::array<double, kSparseVlmStages> counts;
  };
  constexpr double kTotal = 576;
  constexpr std::array<Knot, 6> kKnots = {{{0, {0, 0, 0}},
                                           {64, {66, 34, 20}},
                                           {96, {246, 54, 28}},
                                           {128, {238, 108, 60}},
                                           {192, {300, 200, 118}},
                                           {kTotal, {kTotal, kTotal, kTotal}}}};
  std::array<std::int64_t, kSparseVlmStages> out{};
  if (total <= 0 || budget <= 0) return out;
  if (budget >= total) return {total, total, total};
  const double scale = kTotal / to_double(total);
  const double target = to_double(budget) * scale;
  std::size_t after = 1;
  while (after + 1 < kKnots.size() && kKnots[after].target < target) ++after;
  const Knot& low = kKnots[after - 1];
  const Knot& high = kKnots[after];
  const double part = (target - low.target) / (high.target - low.target);
  std::int64_t last = total;
  for (std::size_t s = 0; s < out.size(); ++s) {
    const double count = low.counts[s] + part * (high.counts[s] - low.counts[s]);
    out[s] = std::clamp(round_half_even(count / scale), std::int64_t{1}, last);
    last = out[s];
  }
  return out;
}

// Text tokens whose mean softmax weight is above the mean of all, ascending; all of them when none
// is. Weights: softmax over text of visual . text, mean over the listed visual tokens.
inline std::vector<std::int64_t> sparsevlm_raters(MatrixView visual,
                                                  std::span<const TokenIndex> tokens,
                                                  MatrixView text, PruneScratch& scratch) {
  expects(visual.columns == text.columns, "embeddings of one width");
  const ScratchScope scope(scratch);
  const auto weights = scratch.take<double>(text.rows), logits = scratch.take<double>(text.rows);
  for (const TokenIndex i : tokens) {
    double highest = -HUGE_VAL, sum = 0;
    for (std::int64_t t = 0; t < text.rows; ++t) {
      nth(logits, t) = dot(visual.row(i), text.row(t));
      highest = std::max(highest, nth(logits, t));
    }
    for (double& logit : logits) sum += (logit = std::exp(logit - highest));
    for (std::size_t t = 0; t < weights.size(); ++t) weights[t] += logits[t] / sum;
  }
  double mean = 0;
  for (const double weight : weights) mean += weight / to_double(weights.size());
  std::vector<std::int64_t> raters;
  for (std::size_t t = 0; t < weights.size(); ++t) {
    // A hair above, so that equal weights are not distinguished by the rounding of their mean.
    if (weights[t] > mean * (1 + 1e-12)) raters.push_back(to_index(t));
  }
  const bool nobody = raters.empty();
  for (std::int64_t t = 0; nobody && t < text.rows; ++t) raters.push_back(t);
  return raters;
}

// sum over the pairs of a head of 2 cos(angle), over sqrt(head_dim): the logit of an all-ones query
// and an all-ones key at these positions.
inline double rotation_logit(const RopeFacts& rope, const std::array<std::int32_t, 3>& query,
                             const std::array<std::int32_t, 3>& key) {
  const std::int64_t pairs = rope.head_dim / 2;
  const bool plain = rope.sections[0] + rope.sections[1] + rope.sections[2] == 0;
  double sum = 0;
  for (std::int64_t i = 0; i < pairs; ++i) {
    const std::size_t axis = plain || i < rope.sections[0]             ? 0
                             : i < rope.sections[0] + rope.sections[1] ? 1
                                                                       : 2;
    const double turn = std::pow(rope.theta, -2.0 * to_double(i) / to_double(rope.head_dim));
    sum += 2 * std::cos((query[axis] - key[axis]) * turn);
  }
  return sum / std::sqrt(to_double(rope.head_dim));
}

class SparseVlm final : public Pruner {
 public:
  struct Settings {
    std::array<int, kSparseVlmStages> layers = {2, 6, 15};  // pruned after them
    std::int64_t heads = 0;                                 // 0: half
    double min_divisor = 0.05;                            // of the largest
    bool rotation = true;                                   // divide by the rotation's own logit
  };
  explicit SparseVlm(const Settings& settings) : settings_(settings) {}
  std::string_view name() const override { return "sparsevlm"; }

  std::vector<Hook> hooks(const PrunedModel& model) const override {
    std::vector<Hook> out = {{HookPoint::kAfterProjector}};
    for (const int layer : layers_in(model)) out.push_back({HookPoint::kBeforeLlm, layer + 1});
    return out;
  }
  std::vector<SignalNeed> needs(const Hook& hook, const PrunedModel&,
                                const PruneState& state) const override {
    if (hook.point == HookPoint::kAfterProjector) {
      return {{SignalKind::kEmbeddings}, {SignalKind::kTextEmbeddings}};
    }
    expects(state.numbers.size() > kSparseVlmStages, "the first hook was served");
    return {{SignalKind::kAttentionRows,
             hook.layer - 1,
             RowChoice::kListed,
             {state.numbers.begin() + kSparseVlmStages + 1, state.numbers.end()}}};
  }

  PrunePlan select(const PruneInputs& in, PruneState& state, PruneScratch& scratch) const override {
    expect_merged_cells(name(), in.block);
    const ScratchScope scope(scratch);
    Budget budget = in.budget;
    budget.scope = Scope::kGlobal;
    const auto groups = group_candidates(in.block, budget, Scope::kGlobal, scratch);
    if (in.hook.point == HookPoint::kAfterProjector) {
      begin(in, groups.tokens, state, scratch);
      return whole_plan(in.block, in.budget, PositionPolicy::kOriginal);
    }
    expects(state.numbers.size() > kSparseVlmStages, "the first hook was served");
    const auto stage = to_size(state.numbers[0]++);
    expects(stage < kSparseVlmStages, "three stages");
    if (groups.tokens.empty()) {
      return whole_plan(in.block, in.budget, PositionPolicy::kOriginal);
    }
    const auto chosen = scratch.take<std::uint8_t>(in.block.count());
    const auto relevance = relevance_of(in, groups.tokens, state, scratch);
    for (const TokenIndex place : ranked(relevance, state.numbers[stage + 1], scratch)) {
      nth(chosen, nth(groups.tokens, place)) = 1;
    }
    return plan_of(in.block, in.budget, chosen, PositionPolicy::kOriginal);
  }

 private:
  // A model too shallow for these layers is pruned at the same share of its depth, the published
  // ones being of 32 (ours).
  std::array<int, kSparseVlmStages> layers_in(const PrunedModel& model) const {
    std::array<int, kSparseVlmStages> out = settings_.layers;
    if (out.back() + 1 < model.llm_layers) return out;
    int least = 0;
    for (int& layer : out) {
      layer = std::max(least, narrow<int>(round_half_even(layer * model.llm_layers / 32.0)));
      least = layer + 1;
    }
    return out;
  }

  // State: numbers = {next stage, the three counts, raters...}.
  void begin(const PruneInputs& in, std::span<const TokenIndex> tokens, PruneState& state,
             PruneScratch& scratch) const {
    const Signal& visual =
        in.signals.per_token(name(), SignalKind::kEmbeddings, 0, in.block.count());
    const Signal& text = in.signals.get(name(), SignalKind::kTextEmbeddings, 0);
    const auto total = std::ssize(tokens);
    const auto counts = sparsevlm_counts(total, in.budget.kept_of(total, Rounding::kHalfEven));
    state.numbers = {0, counts[0], counts[1], counts[2]};
    for (const std::int64_t rater : sparsevlm_raters(visual.values, tokens, text.values, scratch)) {
      state.numbers.push_back(rater);
    }
  }

  std::span<const float> relevance_of(const PruneInputs& in, std::span<const TokenIndex> tokens,
                                      const PruneState& state, PruneScratch& scratch) const {
    const Signal& attention = in.signals.per_token(name(), SignalKind::kAttentionRows,
                                                   in.hook.layer - 1, in.block.count());
    const std::span<const std::int64_t> raters =
        std::span(state.numbers).subspan(kSparseVlmStages + 1);
    const auto rows = std::ssize(raters);
    if (attention.values.rows != attention.heads * rows) {
      throw Error{{.kind = ErrorKind::kUsage,
                   .code = "E_PRUNE_SIGNAL",
                   .where = "pruner sparsevlm, attention rows",
                   .expected = std::to_string(attention.heads * rows) + " rows",
                   .found = std::to_string(attention.values.rows)}};
    }
    const auto total = std::ssize(tokens);
    const auto sums = scratch.take<double>(total);
    const auto divisors = scratch.take<double>(total, 1.0);
    const auto heads = best_heads(attention, tokens, rows, scratch);
    for (std::int64_t r = 0; r < rows; ++r) {
      if (settings_.rotation) fill_divisors(in, tokens, nth(raters, r), divisors);
      for (const std::int64_t h : heads) {
        const auto row = attention.values.row(h * rows + r);
        for (std::size_t i = 0; i < sums.size(); ++i) {
          sums[i] += nth(row, tokens[i]) / divisors[i];
        }
      }
    }
    const auto out = scratch.take<float>(total);
    const double count = std::max(1.0, to_double(rows) * to_double(heads.size()));
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = to_float(sums[i] / count);
    return out;
  }

  std::span<const TokenIndex> best_heads(const Signal& attention,
                                         std::span<const TokenIndex> tokens, std::int64_t rows,
                                         PruneScratch& scratch) const {
    const auto mass = scratch.take<float>(attention.heads);
    for (std::int64_t h = 0; h < attention.heads; ++h) {
      double sum = 0;
      for (std::int64_t r = 0; r < rows; ++r) {
        const auto row = attention.values.row(h * rows + r);
        for (const TokenIndex i : tokens) sum += nth(row, i);
      }
      nth(mass, h) = to_float(sum);
    }
    const std::int64_t wanted = settings_.heads > 0
                                    ? settings_.heads
                                    : std::max((attention.heads + 1) / 2, std::int64_t{1});
    return top_places(mass, wanted, scratch);
  }

  void fill_divisors(const PruneInputs& in, std::span<const TokenIndex> tokens, std::int64_t rater,
                     std::span<double> out) const {
    expects(rater < std::ssize(in.text_positions), "a position for each text token");
    const auto& query = nth(in.text_positions, rater);
    const double least = settings_.min_divisor * rotation_logit(in.model.rope, {}, {});
    for (std::size_t i = 0; i < out.size(); ++i) {
      auto key = in.block[tokens[i]].position;
      if (in.block.position_rows == 1) key = {key[0], key[0], key[0]};
      out[i] = std::max(rotation_logit(in.model.rope, query, key), least);
    }
  }

  Settings settings_;
};

}  // namespace tessera
