// The seam of visual-token pruning: a pruner says at which places of a model it works and what it
// needs there, and answers one call with a plan. It is const and its answer a function of its
// inputs alone; what it has to remember from one place to the next is a state that the caller
// keeps.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/core/index.h"
#include "vision/pruning/budget.h"
#include "vision/pruning/plan.h"
#include "vision/pruning/scratch.h"
#include "vision/pruning/signals.h"
#include "vision/pruning/visual_block.h"

namespace tessera {

// Rotation of the language model's keys, for methods that correct for it.
struct RopeFacts {
  std::int64_t head_dim = 128;
  double theta = 10000;
  // M-RoPE: pairs of a head that turn with time, row and column. All zero: one id for all pairs.
  std::array<std::int64_t, 3> sections{};
};

// What a pruner may know of the model.
struct PrunedModel {
  std::string_view family = "llava";
  bool cls = true;                          // the encoder has a CLS token
  RowSource substitute = RowSource::kNone;  // what it can serve in place of a CLS row
  int encoder_layers = 24;
  int feature_layer = 22;  // whose output the projector reads; its attention is "layer 22"
  int llm_layers = 32;
  std::int64_t tiles = 1;       // encoder inputs of the image at hand
  std::int64_t merge_cell = 1;  // encoder patches the projector merges into one token
  RopeFacts rope;
};

// What a method remembers between the hooks of one request. Empty at the first; only the method
// itself knows what the entries mean.
struct PruneState {
  std::vector<float> values;
  std::vector<std::int64_t> numbers;
};

struct PruneInputs {
  const VisualBlock& block;  // as it is at this hook, after what earlier hooks dropped
  const Signals& signals;
  const Budget& budget;  // the same at every hook
  const PrunedModel& model;
  Hook hook;
  std::uint64_t seed = 0, item = 0;  // for methods with chance in them
  // Position ids of the text tokens after the image, for methods that correct for rotation.
  std::span<const std::array<std::int32_t, 3>> text_positions;
};

class Pruner {
 public:
  virtual ~Pruner() = default;
  virtual std::string_view name() const = 0;
  // In the order in which the model reaches them.
  virtual std::vector<Hook> hooks(const PrunedModel& model) const = 0;
  // What select() will read at this hook, given what earlier hooks left.
  virtual std::vector<SignalNeed> needs(const Hook& hook, const PrunedModel& model,
                                        const PruneState& state) const = 0;
  // The next plan; the state becomes the one for the next hook. Error kUsage for a missing signal,
  // a budget out of range, a block the method cannot work on.
  virtual PrunePlan select(const PruneInputs& inputs, PruneState& state,
                           PruneScratch& scratch) const = 0;
};

// Error E_PRUNE_CELLS when the block's merge cells hold several tokens: single patches of a cell
// must not leave.
inline void expect_merged_cells(std::string_view method, const VisualBlock& block) {
  if (block.cell_size == 1) return;
  throw Error{{.kind = ErrorKind::kUsage,
               .code = "E_PRUNE_CELLS",
               .where = "pruner " + std::string(method),
               .expected = "tokens after the projector's merger",
               .found = "patches in merge cells of " + std::to_string(block.cell_size),
               .hint = "hook after the projector, or use a method that keeps whole cells"}};
}

// Error E_PRUNE_BUDGET when newlines, markers or timestamps are to compete: methods that score
// patches of an encoder have no score for them.
inline void expect_only_patches(std::string_view method, const Budget& budget) {
  for (const TokenKind kind : {TokenKind::kNewline, TokenKind::kMarker, TokenKind::kTimestamp}) {
    if (nth(budget.outcome, kind) != TokenOutcome::kCompete) continue;
    throw Error{{.kind = ErrorKind::kUsage,
                 .code = "E_PRUNE_BUDGET",
                 .where = "pruner " + std::string(method),
                 .expected = "newlines, markers and timestamps protected or dropped",
                 .found = "a budget in which they compete"}};
  }
}

}  // namespace tessera
