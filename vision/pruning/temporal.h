// Temporal merging: of tokens that stand at one place in frame after frame, those that look like
// what is there already are kept once. Tokens that differ most from the token before them at their
// place stay; the others are merged into the last one that stays there.
//
// After the temporal half of DyCoke (Tao et al., CVPR 2025, "Dynamic Compression of Tokens for Fast
// Video Large Language Models"), which compares the tokens of neighbouring frames at the same place
// by cosine and drops the more alike share of them inside windows of four frames. **This is our
// instantiation**: no windows, one budget over the whole video, and alike tokens are averaged by
// size instead of dropped. With an adaptive budget a token stays when its cosine with the last one
// kept at its place is below `alike`. An image, or a budget below the first frame's tokens, is
// thinned at even distances: there is nothing before to compare with.
#pragma once

#include <algorithm>

#include "engine/core/index.h"
#include "vision/pruning/primitives.h"
#include "vision/pruning/pruner.h"

namespace tessera {

class Temporal final : public Pruner {
 public:
  struct Settings {
    double alike = 0.8;  // cosine from which a dropped token is merged, and an adaptive one dropped
    bool merge = true;   // false: what does not stay is gone
  };
  Temporal() = default;
  explicit Temporal(const Settings& settings) : settings_(settings) {}
  std::string_view name() const override { return "temporal"; }
  std::vector<Hook> hooks(const PrunedModel&) const override {
    return {{HookPoint::kAfterProjector}};
  }
  std::vector<SignalNeed> needs(const Hook&, const PrunedModel&, const PruneState&) const override {
    return {{SignalKind::kEmbeddings}};
  }

  PrunePlan select(const PruneInputs& in, PruneState&, PruneScratch& scratch) const override {
    expect_merged_cells(name(), in.block);
    const ScratchScope scope(scratch);
    const std::int64_t total = in.block.count();
    const Signal& embeddings = in.signals.per_token(name(), SignalKind::kEmbeddings, 0, total);
    const MatrixView unit =
        normalised_rows(embeddings.values, all_places(in.block.tokens.size(), scratch), scratch);
    const auto groups = group_candidates(in.block, in.budget, Scope::kGlobal, scratch);
    const auto keeps = kept_by_group(in.budget, groups, Rounding::kHalfEven, scratch);
    const auto competes = scratch.take<std::uint8_t>(total);
    for (const TokenIndex i : groups.tokens) nth(competes, i) = 1;
    const auto before = tokens_before(in.block, competes, scratch);
    const auto chosen = scratch.take<std::uint8_t>(total);
    for (std::int64_t g = 0; g < groups.groups(); ++g) {
      const ScratchScope of_group(scratch);
      if (in.budget.adaptive) {
        choose_new(groups.group(g), unit, before, in.budget, chosen, scratch);
      } else {
        choose(groups.group(g), unit, before, nth(keeps, g), chosen, scratch);
      }
    }
    PrunePlan plan = plan_of(in.block, in.budget, chosen, renumber_unless_3d(in.block));
    if (settings_.merge) add_merges(groups.tokens, unit, before, chosen, plan, scratch);
    return plan;
  }

 private:
  static std::size_t at(TokenIndex i) { return to_size(i); }
  static float likeness(MatrixView unit, TokenIndex a, TokenIndex b) {
    return dot(unit.row(a), unit.row(b));
  }

  // Of each candidate: the candidate at its place in the frame before, -1 where there is none.
  static std::span<const TokenIndex> tokens_before(const VisualBlock& block,
                                                   std::span<const std::uint8_t> competes,
                                                   PruneScratch& scratch) {
    std::int64_t rows = 0, columns = 0;
    for (const VisualToken& token : block.tokens) {
      rows = std::max<std::int64_t>(rows, token.row + 1);
      columns = std::max<std::int64_t>(columns, token.column + 1);
    }
    const auto out = scratch.take<TokenIndex>(block.count(), -1);
    const auto last = scratch.take<TokenIndex>(rows * columns, -1);
    for (TokenIndex i = 0; i < block.count(); ++i) {
      const VisualToken& token = block[i];
      if (token.kind != TokenKind::kPatch || competes[at(i)] == 0 || token.row < 0) continue;
      TokenIndex& there = nth(last, token.row * columns + token.column);
      if (there >= 0 && block[there].frame < token.frame) out[at(i)] = there;
      there = i;
    }
    return out;
  }

  // The budget: all that stand first at their place, then those least like the token before.
  static void choose(std::span<const TokenIndex> tokens, MatrixView unit,
                     std::span<const TokenIndex> before, std::int64_t keep,
                     std::span<std::uint8_t> chosen, PruneScratch& scratch) {
    const auto count = std::ssize(tokens);
    const auto firsts = scratch.take<TokenIndex>(count);
    const auto later = scratch.take<TokenIndex>(count);
    const auto change = scratch.take<float>(count);
    std::int64_t first_count = 0, later_count = 0;
    for (const TokenIndex i : tokens) {
      if (before[at(i)] < 0) {
        nth(firsts, first_count++) = i;
      } else {
        nth(change, later_count) = -likeness(unit, i, before[at(i)]);
        nth(later, later_count++) = i;
      }
    }
    const std::int64_t of_firsts = std::min(keep, first_count);
    for (std::int64_t i = 0; i < of_firsts; ++i) {
      const std::int64_t place = (2 * i + 1) * first_count / (2 * of_firsts);
      chosen[at(nth(firsts, place))] = 1;
    }
    const auto later_size = to_size(later_count);
    mark(later.first(later_size), ranked(change.first(later_size), keep - of_firsts, scratch),
         chosen);
  }

  // Every token that is news, at least the budget's least; beyond its most the first ones.
  void choose_new(std::span<const TokenIndex> tokens, MatrixView unit,
                  std::span<const TokenIndex> before, const Budget& budget,
                  std::span<std::uint8_t> chosen, PruneScratch& scratch) const {
    const auto kept_there = scratch.take<TokenIndex>(std::ssize(chosen), -1);
    std::int64_t count = 0;
    for (const TokenIndex i : tokens) {
      const TokenIndex last = before[at(i)] < 0 ? -1 : kept_there[at(before[at(i)])];
      const bool news = last < 0 || !(likeness(unit, i, last) >= settings_.alike);
      const bool stays = news && count < budget.most;
      kept_there[at(i)] = stays ? i : last;
      if (!stays) continue;
      chosen[at(i)] = 1;
      ++count;
    }
    for (const TokenIndex i : tokens) {
      if (count >= std::min(budget.least, std::ssize(tokens))) break;
      if (chosen[at(i)] != 0) continue;
      chosen[at(i)] = 1;
      ++count;
    }
  }

  void add_merges(std::span<const TokenIndex> tokens, MatrixView unit,
                  std::span<const TokenIndex> before, std::span<const std::uint8_t> chosen,
                  PrunePlan& plan, PruneScratch& scratch) const {
    const auto kept_there = scratch.take<TokenIndex>(std::ssize(chosen), -1);
    for (const TokenIndex i : tokens) {
      if (chosen[at(i)] != 0) {
        kept_there[at(i)] = i;
        continue;
      }
      const TokenIndex last = before[at(i)] < 0 ? -1 : kept_there[at(before[at(i)])];
      kept_there[at(i)] = last;
      if (last >= 0 && likeness(unit, i, last) >= settings_.alike) plan.merges.push_back({i, last});
    }
    if (!plan.merges.empty()) plan.rule = MergeRule::kSizeWeightedMean;
  }

  Settings settings_;
};

}  // namespace tessera
