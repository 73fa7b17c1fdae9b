#include "apps/runtime/prune_session.h"

#include <algorithm>
#include <chrono>

#include "engine/core/index.h"

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
        check_layer("an image encoder", need.layer, model.feature_layer + 1);
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
  if (scores_.empty()) keep_scores(block, signals);
  if (plan.source != RowSource::kNone) source_ = plan.source;
  if (hook.point != HookPoint::kBeforeLlm) positions_ = plan.positions;
  return plan;
}

// One number a patch, for people to look at; the method itself may weigh its signals otherwise.
void PruneSession::keep_scores(const VisualBlock& block, std::span<const Signal> signals) {
  const auto attention = std::find_if(signals.begin(), signals.end(), [&](const Signal& signal) {
    const bool rows =
        signal.kind == SignalKind::kClsRow || signal.kind == SignalKind::kAttentionRows;
    return rows && !signal.values.empty() && signal.values.columns == block.count();
  });
  if (attention == signals.end()) return;
  const MatrixView& values = attention->values;
  for (TokenIndex i = 0; i < block.count(); ++i) {
    const VisualToken& token = block[i];
    if (token.kind != TokenKind::kPatch || token.padded) continue;
    float sum = 0;
    for (std::int64_t row = 0; row < values.rows; ++row) {
      sum += nth(values.row(row), i);
    }
    scores_[{token.tile, token.row, token.column}] = sum / to_float(values.rows);
  }
}

}  // namespace tessera
