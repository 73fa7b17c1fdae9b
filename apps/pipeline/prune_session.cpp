#include "apps/pipeline/prune_session.h"

#include <algorithm>
#include <chrono>

namespace tessera {

PruneSession::PruneSession(const Pruner& pruner, const PrunedModel& model, const Budget& budget,
                           std::uint64_t seed, std::uint64_t item)
    : pruner_(pruner),
      model_(model),
      budget_(budget),
      seed_(seed),
      item_(item),
      hooks_(pruner.hooks(model)) {
  check_pruner(pruner.name(), model, budget);
  const auto check_layer = [&](const char* what, int layer, int layers) {
    if (layer < layers) return;
    throw Error({.kind = ErrorKind::kUsage,
                 .code = "E_PRUNE_LAYERS",
                 .where = "pruner " + std::string(pruner.name()),
                 .expected = what + (" of more than " + std::to_string(layer)) + " layers",
                 .found = std::to_string(layers),
                 .hint = "choose earlier layers with --prune-option"});
  };
  for (const Hook& hook : hooks_) {
    if (hook.point == HookPoint::kBeforeLlm) {
      check_layer("a language model", hook.layer, model.llm_layers);
    } else if (hook.point != HookPoint::kAfterProjector) {
      for (const SignalNeed& need : needs(hook)) {
        check_layer("a picture encoder", need.layer, model.feature_layer + 1);
      }
    }
  }
}

bool PruneSession::asks(HookPoint point) const {
  return std::any_of(hooks_.begin(), hooks_.end(),
                     [&](const Hook& hook) { return hook.point == point; });
}

bool PruneSession::asks(const Hook& hook) const {
  return std::find(hooks_.begin(), hooks_.end(), hook) != hooks_.end();
}

PrunePlan PruneSession::select(const Hook& hook, const VisualBlock& block,
                               std::span<const Signal> signals,
                               std::span<const std::array<std::int32_t, 3>> text_positions) {
  const auto start = std::chrono::steady_clock::now();
  const Signals given(signals);
  PrunePlan plan = pruner_.select({.block = block,
                                   .signals = given,
                                   .budget = budget_,
                                   .model = model_,
                                   .hook = hook,
                                   .seed = seed_,
                                   .item = item_,
                                   .text_positions = text_positions},
                                  state_, scratch_);
  seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (plan.source != RowSource::kNone) source_ = plan.source;
  if (hook.point != HookPoint::kBeforeLlm) positions_ = plan.positions;
  return plan;
}

}  // namespace tessera
