// Verifier-guided pruning of a draft model (SpecVLM of Ji et al., EMNLP 2025, section 3): the model
// that verifies the drafts has read the whole prompt, and its attention says what the draft needs.
// The score of a visual token is the mean, over all layers, heads and text tokens after the
// images, of the attention that it got there. Of K tokens first the fewest whose scores reach 40
// % of the sum, at most K; the places left are spread evenly over the others (the published
// linspace over what is not selected, truncated), because a draft that sees only where the verifier
// looked loses the rest of a video.
//
// For drafts (--draft-prune). Where nobody verifies, in a target, all places are spread evenly: what
// the authors recommend as the simple way.
#pragma once

#include <algorithm>

#include "engine/core/index.h"
#include "vision/pruning/primitives.h"
#include "vision/pruning/pruner.h"

namespace tessera {

class VerifierGuided final : public Pruner {
 public:
  struct Settings {
    double share = 0.4;  // of the attention that the first part shall hold
  };
  VerifierGuided() = default;
  explicit VerifierGuided(const Settings& settings) : settings_(settings) {}
  std::string_view name() const override { return "verifier"; }
  std::vector<Hook> hooks(const PrunedModel&) const override {
    return {{HookPoint::kAfterProjector}};
  }
  std::vector<SignalNeed> needs(const Hook&, const PrunedModel&, const PruneState&) const override {
    return {{SignalKind::kVerifierScores}};
  }

  PrunePlan select(const PruneInputs& in, PruneState&, PruneScratch& scratch) const override {
    expect_merged_cells(name(), in.block);
    const ScratchScope scope(scratch);
    MatrixView scores;
    if (in.signals.has(SignalKind::kVerifierScores, 0)) {
      scores =
          in.signals.per_token(name(), SignalKind::kVerifierScores, 0, in.block.count()).values;
    }
    const auto groups = group_candidates(in.block, in.budget, Scope::kGlobal, scratch);
    const auto keeps = kept_by_group(in.budget, groups, Rounding::kFloor, scratch);
    const auto chosen = scratch.take<std::uint8_t>(in.block.count());
    for (std::int64_t g = 0; g < groups.groups(); ++g) {
      const ScratchScope of_group(scratch);
      choose(groups.group(g), scores, nth(keeps, g), chosen, scratch);
    }
    return plan_of(in.block, in.budget, chosen, renumber_unless_3d(in.block));
  }

 private:
  void choose(std::span<const TokenIndex> tokens, MatrixView scores, std::int64_t keep,
              std::span<std::uint8_t> chosen, PruneScratch& scratch) const {
    if (scores.rows == 0) return spread(tokens, keep, chosen, scratch);
    const auto own = scratch.take<float>(std::ssize(tokens));
    double all = 0;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      own[i] = scores.row(tokens[i])[0];
      if (own[i] > 0) all += own[i];
    }
    double held = 0;
    std::int64_t taken = 0;
    for (const TokenIndex place : ranked(own, keep, scratch)) {
      if (taken > 0 && held >= settings_.share * all) break;
      const float score = nth(own, place);
      if (score > 0) held += score;
      nth(chosen, nth(tokens, place)) = 1;
      ++taken;
    }
    spread(tokens, keep - taken, chosen, scratch);
  }

  // `more` of the tokens that are not chosen, from the first to the last of them.
  static void spread(std::span<const TokenIndex> tokens, std::int64_t more,
                     std::span<std::uint8_t> chosen, PruneScratch& scratch) {
    const auto rest = scratch.take<TokenIndex>(std::ssize(tokens));
    std::int64_t count = 0;
    for (const TokenIndex i : tokens) {
      if (nth(chosen, i) == 0) nth(rest, count++) = i;
    }
    for (std::int64_t i = 0; i < more; ++i) {
      const std::int64_t place = more == 1 ? 0 : i * (count - 1) / (more - 1);
      nth(chosen, nth(rest, place)) = 1;
    }
  }

  Settings settings_;
};

}  // namespace tessera
