// Carries prune plans out. Sums run in the order of sources, in double, so that a result does not
// depend on how the merge list was sorted.
#include <algorithm>
#include <numeric>

#include "engine/core/index.h"
#include "vision/pruning/plan.h"
#include "vision/pruning/primitives.h"

namespace tessera {

namespace {

std::vector<TokenIndex> output_order(const PrunePlan& plan) {
  if (plan.order.empty()) return plan.kept;
  expects(plan.order.size() == plan.kept.size(), "an order names every kept token");
  std::vector<bool> seen(plan.kept.size());
  std::vector<TokenIndex> out;
  for (const TokenIndex place : plan.order) {
    expects(place >= 0 && place < std::ssize(plan.kept), "place in the plan");
    expects(!nth(seen, place), "an order names a token once");
    nth(seen, place) = true;
    out.push_back(nth(plan.kept, place));
  }
  return out;
}

void check_plan(const PrunePlan& plan, std::int64_t tokens) {
  TokenIndex last = -1;
  for (const TokenIndex i : plan.kept) {
    expects(i > last && i < tokens, "kept tokens ascend and are in the block");
    last = i;
  }
  std::vector<bool> merged(to_size(tokens));
  for (const Merge& merge : plan.merges) {
    expects(merge.source >= 0 && merge.source < tokens, "a source is in the block");
    expects(std::binary_search(plan.kept.begin(), plan.kept.end(), merge.destination),
            "a destination is kept");
    expects(!std::binary_search(plan.kept.begin(), plan.kept.end(), merge.source),
            "a source is not kept");
    expects(!nth(merged, merge.source), "a token is merged once");
    nth(merged, merge.source) = true;
  }
  expects(plan.merges.empty() || plan.rule != MergeRule::kNone, "merges have a rule");
}

}  // namespace

PrunedBlock apply(const PrunePlan& plan, const VisualBlock& block, MatrixView features) {
  check_plan(plan, block.count());
  const std::vector<TokenIndex> order = output_order(plan);
  PrunedBlock out;
  out.block.position_rows = block.position_rows;
  out.block.cell_size = block.cell_size;
  out.block.grid = block.grid;
  for (const TokenIndex i : order) out.block.tokens.push_back(block[i]);

  std::vector<float> sizes;
  if (plan.rule == MergeRule::kSizeWeightedMean) {
    for (const VisualToken& token : block.tokens) sizes.push_back(token.size);
    std::vector<double> sums(sizes.begin(), sizes.end());
    for (const Merge& merge : plan.merges) {
      nth(sums, merge.destination) += nth(sizes, merge.source);
    }
    for (std::size_t slot = 0; slot < order.size(); ++slot) {
      out.block.tokens[slot].size = to_float(nth(sums, order[slot]));
    }
  }
  if (features.columns > 0) {
    expects(features.rows == block.count(), "a feature row for each token");
    out.features.resize(order.size() * to_size(features.columns));
    scatter_combine(features, order, plan.merges, plan.rule, sizes, out.features);
  }
  out.statistics = {.total = block.count(),
                    .kept = std::ssize(plan.kept),
                    .merged = std::ssize(plan.merges),
                    .candidates = plan.candidates,
                    .chosen = plan.chosen};
  return out;
}

PrunedSequence prune_sequence(std::span<const std::int32_t> positions, int position_rows,
                              std::span<const PlacedPlan> plans, PositionPolicy policy) {
  expects(position_rows == 1 || position_rows == 3, "one row of ids or three");
  expects(positions.size() % to_size(position_rows) == 0, "rows of one length");
  expects(policy == PositionPolicy::kOriginal || position_rows == 1,
          "only plain positions can be renumbered");
  const auto length = std::ssize(positions) / position_rows;
  PrunedSequence out;
  std::int64_t at = 0;
  const auto copy_until = [&](std::int64_t end) {
    expects(at <= end && end <= length, "blocks lie apart, in the sequence");
    for (; at < end; ++at) out.rows.push_back(at);
  };
  for (const PlacedPlan& placed : plans) {
    check_plan(*placed.plan, placed.tokens);
    copy_until(placed.begin);
    for (const TokenIndex i : output_order(*placed.plan)) out.rows.push_back(placed.begin + i);
    at = placed.begin + placed.tokens;
  }
  copy_until(length);

  if (length == 0) return out;
  const auto kept = std::ssize(out.rows);
  out.positions.resize(to_size(kept * position_rows));
  if (policy == PositionPolicy::kRenumber) {
    std::iota(out.positions.begin(), out.positions.end(), positions.front());
    out.delta = positions.front();
    return out;
  }
  for (int row = 0; row < position_rows; ++row) {
    for (std::int64_t i = 0; i < kept; ++i) {
      nth(out.positions, row * kept + i) = nth(positions, row * length + nth(out.rows, i));
    }
  }
  out.delta = *std::max_element(positions.begin(), positions.end()) + std::int64_t{1} - kept;
  return out;
}

PrunePlan plan_of(const VisualBlock& block, const Budget& budget,
                  std::span<const std::uint8_t> chosen, PositionPolicy positions) {
  expects(std::ssize(chosen) == block.count(), "a mark for each token");
  PrunePlan plan;
  plan.positions = positions;
  for (TokenIndex i = 0; i < block.count(); ++i) {
    const TokenOutcome outcome = outcome_of(block[i], budget);
    const bool competed = outcome == TokenOutcome::kCompete;
    const bool won = competed && nth(chosen, i) != 0;
    plan.candidates += competed ? 1 : 0;
    plan.chosen += won ? 1 : 0;
    if (won || outcome == TokenOutcome::kProtect) plan.kept.push_back(i);
  }
  return plan;
}

PrunePlan whole_plan(const VisualBlock& block, const Budget& budget, PositionPolicy positions) {
  PrunePlan plan;
  plan.positions = positions;
  for (TokenIndex i = 0; i < block.count(); ++i) {
    plan.kept.push_back(i);
    if (outcome_of(block[i], budget) == TokenOutcome::kCompete) ++plan.candidates;
  }
  plan.chosen = plan.candidates;
  return plan;
}

PrunePlan raster_plan(const VisualBlock& block) {
  PrunePlan plan = whole_plan(block, Budget{}, renumber_unless_3d(block));
  plan.order = plan.kept;
  std::stable_sort(plan.order.begin(), plan.order.end(), [&](TokenIndex a, TokenIndex b) {
    return block[a].position < block[b].position;
  });
  return plan;
}

}  // namespace tessera
