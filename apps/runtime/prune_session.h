// One image's pruning from hook to hook: asks the method, keeps what it remembers, counts what it
// did and how long it thought.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "vision/pruning/registry.h"

namespace tessera {

// What a user asks for; an empty method prunes nothing.
struct PruneChoice {
  std::string method;
  std::vector<PruneOption> options;
  Budget budget;

  bool on() const { return !method.empty(); }
};

class PruneSession {
 public:
  // The pruner must outlive the session. Error kUsage when the model cannot serve the method
  // (check_pruner), or runs fewer layers than it asks for (E_PRUNE_LAYERS).
  PruneSession(const Pruner& pruner, const PrunedModel& model, const Budget& budget,
               std::uint64_t seed, std::uint64_t item);

  const PrunedModel& model() const { return model_; }
  std::span<const Hook> hooks() const { return hooks_; }
  bool asks(HookPoint point) const;
  bool asks(const Hook& hook) const;
  std::vector<SignalNeed> needs(const Hook& hook) const {
    return pruner_.needs(hook, model_, state_);
  }

  // The method's plan at a hook for the block as it stands there.
  PrunePlan select(const Hook& hook, const VisualBlock& block, std::span<const Signal> signals,
                   std::span<const std::array<std::int32_t, 3>> text_positions = {});

  double seconds() const { return seconds_; }              // of all selections
  RowSource source() const { return source_; }             // what served as CLS row
  PositionPolicy positions() const { return positions_; }  // of the plans in front of the LLM
  // Tile, row and column of a patch, and the attention that the first selection which read any saw
  // there, mean over heads and queries. Empty for methods that read none.
  const std::map<std::tuple<int, int, int>, float>& scores() const { return scores_; }

 private:
  void keep_scores(const VisualBlock& block, std::span<const Signal> signals);

  const Pruner& pruner_;
  PrunedModel model_;
  Budget budget_;
  std::uint64_t seed_, item_;
  std::vector<Hook> hooks_;
  PruneState state_;
  PruneScratch scratch_;
  double seconds_ = 0;
  RowSource source_ = RowSource::kNone;
  PositionPolicy positions_ = PositionPolicy::kOriginal;
  std::map<std::tuple<int, int, int>, float> scores_;
};

}  // namespace tessera
