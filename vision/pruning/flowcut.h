// FlowCut (Tong et al., NeurIPS 2025): prunes inside the vision encoder, layer by layer, by a score
// that is accumulated over layers, and once more in the language model where the image is large.
// Score of a patch: (a / sum a + s / sum s) |v|_1 with a its attention from the CLS token, s the
// softmax of its value's product with the CLS token's value, v its value averaged over heads. Over
// layers: half the old sum, half the new score. After layers 1, 3, ... the count N goes down by
// (N - K) (1 - e^2) / sqrt(layers to go), e the entropy of a over its largest; then all at once.
// Published: K of 64, 128, 192; images of several tiles keep K / 2 patches a tile in the encoder
// and K after language-model layer 1, where the last prompt token stands for CLS, a is a softmax
// over visual keys alone and s is scaled by 1 / sqrt(head_dim). Ids renumbered.
//
// The paper scales s in the encoder too; the code, and this file, do not. Without CLS (Qwen): score
// a |v|_1 with the substitute row, and 2 K merged tokens stay in the encoder. The official Qwen
// code keeps single patches, which fuses patches of different cells after it; here cells stay
// whole.
#pragma once

#include <algorithm>
#include <cmath>

#include "engine/core/index.h"
#include "vision/pruning/primitives.h"
#include "vision/pruning/pruner.h"
#include "vision/pruning/whole_cells.h"

namespace tessera {

// Patches to take away of `count` after an encoder layer with `to_go` layers after it that may
// still prune; `entropy` is the ratio e.
inline std::int64_t flowcut_step(std::int64_t count, std::int64_t target, int to_go,
                                 double entropy) {
  if (to_go < 0 || to_go % 2 != 0 || count <= target) return 0;
  if (to_go == 0) return count - target;
  const double step =
      to_double(count - target) / std::sqrt(to_double(to_go)) * (1 - entropy * entropy);
  return std::clamp(round_half_even(step), std::int64_t{0}, count - target);
}

class FlowCut final : public Pruner {
 public:
  struct Settings {
    double momentum = 0.5;        // share of the newest score
    std::int64_t llm_stage = -1;  // 1: prune in the language model too; -1: if tiles or cells ask
    int llm_layer = 1;            // after it
  };
  explicit FlowCut(const Settings& settings) : settings_(settings) {}
  std::string_view name() const override { return "flowcut"; }

  std::vector<Hook> hooks(const PrunedModel& model) const override {
    std::vector<Hook> out;
    for (int layer = 0; layer < model.feature_layer; ++layer) {
      out.push_back({HookPoint::kInEncoder, layer});
    }
    if (has_llm_stage(model)) out.push_back({HookPoint::kBeforeLlm, settings_.llm_layer + 1});
    return out;
  }

  std::vector<SignalNeed> needs(const Hook& hook, const PrunedModel& model,
                                const PruneState&) const override {
    if (hook.point == HookPoint::kBeforeLlm) {
      const int layer = hook.layer - 1;
      return {{SignalKind::kLastQuery, layer},
              {SignalKind::kLlmKeys, layer},
              {SignalKind::kLastValue, layer},
              {SignalKind::kLlmValues, layer}};
    }
    std::vector<SignalNeed> out = {{SignalKind::kClsRow, hook.layer},
                                   {SignalKind::kEncoderValues, hook.layer}};
    if (model.cls) out.push_back({SignalKind::kClsValue, hook.layer});
    return out;
  }

  PrunePlan select(const PruneInputs& in, PruneState& state, PruneScratch& scratch) const override {
    expect_only_patches(name(), in.budget);
    const ScratchScope scope(scratch);
    return in.hook.point == HookPoint::kBeforeLlm ? in_llm(in, state, scratch)
                                                  : in_encoder(in, state, scratch);
  }

 private:
  // State: numbers = {final K over the image, then the encoder's target of each group}; values =
  // accumulated score of each token of the block.
  struct Scores {
    std::span<const float> attention;  // sums to 1, or all 0
    std::span<const float> values;     // the score
  };

  bool has_llm_stage(const PrunedModel& model) const {
    return settings_.llm_stage < 0 ? model.tiles > 1 || model.merge_cell > 1
                                   : settings_.llm_stage != 0;
  }

  void begin(const PruneInputs& in, const CandidateGroups& groups, PruneState& state,
             PruneScratch& scratch) const {
    const std::int64_t cell = in.block.cell_size;
    const bool two_stages = has_llm_stage(in.model);
    const auto sizes = scratch.take<std::int64_t>(groups.groups());
    const auto keeps = scratch.take<std::int64_t>(groups.groups());
    for (std::size_t g = 0; g < sizes.size(); ++g) {
      sizes[g] = std::ssize(groups.group(to_index(g))) / cell;
    }
    kept_by_size(in.budget, sizes, Rounding::kHalfEven, keeps);
    // With one stage the budget is a tile's; with two it is the image's, in merged tokens.
    const std::int64_t merged = std::ssize(groups.tokens) / cell;
    const std::int64_t final_count = in.budget.kept_of(merged, Rounding::kHalfEven);
    state.numbers = {final_count};
    for (std::size_t g = 0; g < sizes.size(); ++g) {
      const std::int64_t size = sizes[g];
      // No tile runs through the encoder without a patch.
      std::int64_t target = std::max(keeps[g], std::min(final_count, std::int64_t{1}));
      if (two_stages) {
        const bool tiles = groups.groups() > 1;
        target = final_count == merged ? size : tiles ? final_count / 2 : 2 * final_count;
        // Tiles smaller than their share leave the others more.
        if (tiles) target = std::max(target, (final_count + groups.groups() - 1) / groups.groups());
      }
      state.numbers.push_back(std::min(target, size) * cell);
    }
    state.values.assign(to_size(in.block.count()), 0.0f);
  }

  PrunePlan in_encoder(const PruneInputs& in, PruneState& state, PruneScratch& scratch) const {
    const VisualBlock& block = in.block;
    Budget budget = in.budget;
    budget.scope = Scope::kPerTile;
    const auto groups = group_candidates(block, budget, Scope::kPerTile, scratch);
    const bool fresh = state.numbers.empty();
    if (fresh) begin(in, groups, state, scratch);
    expects(std::ssize(state.values) == block.count() &&
                std::ssize(state.numbers) == groups.groups() + 1,
            "the state belongs to the block");
    PrunePlan plan = whole_plan(block, in.budget, renumber_unless_3d(block));
    bool done = true;
    for (std::int64_t g = 0; g < groups.groups(); ++g) {
      done = done && std::ssize(groups.group(g)) <= target(state, g);
    }
    if (done) return plan;
    const std::int64_t step = score_and_step(in, groups, fresh, state, scratch);
    plan.source = cls_source(in);
    if (step == 0) return plan;
    const auto chosen = scratch.take<std::uint8_t>(block.count());
    for (std::int64_t g = 0; g < groups.groups(); ++g) {
      const auto tokens = groups.group(g);
      const auto count = std::ssize(tokens);
      const auto scores = scratch.take<float>(count);
      for (std::size_t i = 0; i < scores.size(); ++i) {
        scores[i] = nth(state.values, tokens[i]);
      }
      const std::int64_t keep = whole_cells(block, std::max(count - step, target(state, g)));
      keep_best(block, tokens, scores, std::min(keep, count), chosen, scratch);
    }
    plan = plan_of(block, in.budget, chosen, renumber_unless_3d(block));
    plan.source = cls_source(in);
    for (std::size_t i = 0; i < plan.kept.size(); ++i) {
      state.values[i] = nth(state.values, plan.kept[i]);
    }
    state.values.resize(plan.kept.size());
    return plan;
  }

  static std::int64_t target(const PruneState& state, std::int64_t g) {
    return state.numbers[to_size(g) + 1];
  }

  RowSource cls_source(const PruneInputs& in) const {
    return in.signals.get(name(), SignalKind::kClsRow, in.hook.layer).source;
  }

  // Brings the accumulated scores up to date; the patches to drop in every tile: the largest of the
  // tiles' own steps, so that tiles keep equal counts.
  std::int64_t score_and_step(const PruneInputs& in, const CandidateGroups& groups, bool fresh,
                              PruneState& state, PruneScratch& scratch) const {
    const int to_go = in.model.feature_layer - 1 - in.hook.layer;
    std::int64_t step = 0;
    for (std::int64_t g = 0; g < groups.groups(); ++g) {
      const ScratchScope of_group(scratch);
      const auto tokens = groups.group(g);
      if (tokens.empty()) continue;
      const Scores scores = encoder_scores(in, tokens, scratch);
      for (std::size_t i = 0; i < tokens.size(); ++i) {
        float& sum = nth(state.values, tokens[i]);
        const double share = fresh ? 1.0 : settings_.momentum;
        sum = to_float((1 - share) * sum + share * scores.values[i]);
      }
      step = std::max(step, flowcut_step(std::ssize(tokens), target(state, g), to_go,
                                         entropy_of(scores.attention)));
    }
    return step;
  }

  // Attention that is all zero tells nothing: wait.
  static double entropy_of(std::span<const float> attention) {
    const bool any = std::any_of(attention.begin(), attention.end(), [](float p) { return p > 0; });
    return any ? std::min(entropy_ratio(attention), 1.0) : 1.0;
  }

  Scores encoder_scores(const PruneInputs& in, std::span<const TokenIndex> tokens,
                        PruneScratch& scratch) const {
    const std::int64_t total = in.block.count();
    const int layer = in.hook.layer;
    const Signal& cls = in.signals.per_token(name(), SignalKind::kClsRow, layer, total);
    const Signal& values = in.signals.per_token(name(), SignalKind::kEncoderValues, layer, total);
    const auto attention = values_at(column_sums(cls.values, scratch), tokens, scratch);
    std::span<float> likeness;
    if (cls.source == RowSource::kCls) {
      const Signal& own = in.signals.get(name(), SignalKind::kClsValue, layer);
      const auto tile = std::max(in.block[tokens.front()].tile, 0);
      likeness = product_softmax({.query = own.values.row(tile),
                                  .heads = values.heads,
                                  .rows = values.values,
                                  .row_heads = values.heads,
                                  .listed = tokens,
                                  .with_self = true},
                                 scratch);
    }
    return {normalise(attention), combine(attention, normalise(likeness), values, tokens, scratch)};
  }

  static std::span<float> normalise(std::span<float> row) {
    double sum = 0;
    for (const float value : row) sum += value;
    if (!(sum > 0)) return row;
    for (float& value : row) value = to_float(value / sum);
    return row;
  }

  // (a + s) |head mean of v|_1.
  static std::span<const float> combine(std::span<const float> attention,
                                        std::span<const float> likeness, const Signal& values,
                                        std::span<const TokenIndex> tokens, PruneScratch& scratch) {
    const MatrixView mean = head_mean_rows(values.values, values.heads, tokens, scratch);
    const auto out = scratch.take<float>(std::ssize(tokens));
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      double norm = 0;
      for (const float value : mean.row(to_index(i))) norm += std::abs(value);
      const double flow = attention[i] + (likeness.empty() ? 0.0 : likeness[i]);
      out[i] = to_float(flow * norm);
    }
    return out;
  }

  PrunePlan in_llm(const PruneInputs& in, const PruneState& state, PruneScratch& scratch) const {
    const std::int64_t total = in.block.count();
    const int layer = in.hook.layer - 1;
    const Signal& query = in.signals.get(name(), SignalKind::kLastQuery, layer);
    const Signal& keys = in.signals.per_token(name(), SignalKind::kLlmKeys, layer, total);
    const Signal& own = in.signals.get(name(), SignalKind::kLastValue, layer);
    const Signal& values = in.signals.per_token(name(), SignalKind::kLlmValues, layer, total);
    Budget budget = in.budget;
    budget.scope = Scope::kGlobal;
    const auto groups = group_candidates(in.block, budget, Scope::kGlobal, scratch);
    const auto chosen = scratch.take<std::uint8_t>(total);
    if (!groups.tokens.empty()) {
      const auto tokens = groups.tokens;
      const auto count = std::ssize(tokens);
      const MatrixView last = query.values;  // [heads, head_dim], dense
      const float scale = 1.0f / std::sqrt(to_float(last.columns));
      const auto attention =
          product_softmax({.query = {last.data, to_size(last.rows * last.columns)},
                           .heads = last.rows,
                           .rows = keys.values,
                           .row_heads = keys.heads,
                           .listed = tokens,
                           .scale = scale},
                          scratch);
      const auto likeness = product_softmax({.query = own.values.row(0),
                                             .heads = values.heads,
                                             .rows = values.values,
                                             .row_heads = values.heads,
                                             .listed = tokens,
                                             .scale = scale},
                                            scratch);
      const auto scores =
          combine(normalise(attention), normalise(likeness), values, tokens, scratch);
      const std::int64_t keep = state.numbers.empty()
                                    ? in.budget.kept_of(count, Rounding::kHalfEven)
                                    : std::min(state.numbers.front(), count);
      keep_best(in.block, tokens, scores, keep, chosen, scratch);
    }
    return plan_of(in.block, in.budget, chosen, renumber_unless_3d(in.block));
  }

  Settings settings_;
};

}  // namespace tessera
