// The result of a selection, and the one place that carries it out: gathers features, merges, keeps
// the descriptor and the position ids in step. No method touches the sequence.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "vision/pruning/budget.h"
#include "vision/pruning/signals.h"
#include "vision/pruning/visual_block.h"

namespace tessera {

enum class MergeRule : std::uint8_t {
  kNone,              // tokens that are not kept are gone
  kMean,              // destination and sources, weighted by Merge::weight (destination 1)
  kSizeWeightedMean,  // each counts as often as tokens were merged into it; sizes add
  kCentrePlusMean,    // destination + mean of the sources
};

struct Merge {
  TokenIndex source = 0, destination = 0;  // places in the block; a destination is kept
  float weight = 1;
};

enum class PositionPolicy : std::uint8_t {
  kRenumber,  // as if the image had been smaller
  kOriginal,  // every token keeps its id; decoding goes on after the highest
};

struct PrunePlan {
  std::vector<TokenIndex> kept;   // strictly ascending
  std::vector<TokenIndex> order;  // places in `kept`, in output order; empty: ascending
  std::vector<Merge> merges;
  MergeRule rule = MergeRule::kNone;
  PositionPolicy positions = PositionPolicy::kRenumber;
  RowSource source = RowSource::kNone;  // what served as CLS row
  std::int64_t candidates = 0;          // tokens that competed
  std::int64_t chosen = 0;              // of them kept
};

struct PruneStatistics {
  std::int64_t total = 0, kept = 0, merged = 0, candidates = 0, chosen = 0;
};

struct PrunedBlock {
  VisualBlock block;            // of the survivors, in output order
  std::vector<float> features;  // [kept, width]
  PruneStatistics statistics;
};

// Carries a plan out on one block and its features [M, width]. A matrix without columns: the
// descriptor alone. A plan that does not fit the block is a programmer error.
PrunedBlock apply(const PrunePlan& plan, const VisualBlock& block, MatrixView features);

// A plan and the place of its block in the sequence.
struct PlacedPlan {
  const PrunePlan* plan = nullptr;
  std::int64_t begin = 0;   // of the block in the sequence
  std::int64_t tokens = 0;  // of the block
};

struct PrunedSequence {
  std::vector<std::int64_t> rows;       // of the old sequence, in new order: what gathers hidden
                                        // states, and rows of a cache already filled
  std::vector<std::int32_t> positions;  // [position rows, new length]
  std::int64_t delta = 0;               // the position of the next token is sequence length + delta
};

// Position ids [position_rows, length] of a prompt under the plans of its blocks (ascending,
// apart). Renumbered sequences run from the first id upwards; that policy needs one row of ids.
// Original ids: delta = (old highest + 1) - new length.
PrunedSequence prune_sequence(std::span<const std::int32_t> positions, int position_rows,
                              std::span<const PlacedPlan> plans, PositionPolicy policy);

// What pre-LLM methods use: renumbered ids, except that M-RoPE ids stay what they were.
inline PositionPolicy renumber_unless_3d(const VisualBlock& block) {
  return block.position_rows == 1 ? PositionPolicy::kRenumber : PositionPolicy::kOriginal;
}

// The plan that keeps every protected token and every candidate for which chosen[i] != 0.
PrunePlan plan_of(const VisualBlock& block, const Budget& budget,
                  std::span<const std::uint8_t> chosen, PositionPolicy positions);
// The plan that changes nothing, padded and dropped kinds included.
PrunePlan whole_plan(const VisualBlock& block, const Budget& budget, PositionPolicy positions);
// The plan that drops nothing and puts tokens back in the order of their ids: after methods that
// leave another order, before the sequence is put together.
PrunePlan raster_plan(const VisualBlock& block);

}  // namespace tessera
