#include "apps/runtime/caption_method.h"

#include "apps/runtime/caption_model.h"
#include "apps/runtime/generation_parts.h"
#include "engine/decoding/decode_settings.h"

namespace tessera {

namespace {

[[noreturn]] void refuse_method(std::string code, const Setting& flag, std::string expected,
                         std::string found) {
  refuse_request(std::move(code), "--" + std::string(flag.name), std::move(expected),
                 std::move(found));
}

}  // namespace

// What can draft a text: it has no rows above and no code table.
DecodeMethod settle_text_method(DecodeMethod method, const DecodeAids& aids, std::int64_t tokens) {
  if (!drafts_texts(method)) {
    refuse_method("E_DECODE_CAPTION", setting::kDrafter, "none, lookup, recycling or model for texts",
           method.drafter);
  }
  if (aids.draft_model && !needs_of(method).draft_model) {
    refuse_method("E_DECODE_CONFLICT", setting::kModelDraft, "the drafter \"model\"",
           "drafter " + method.drafter);
  }
  if (method.shape() == PassShape::kRows) {
    refuse_method("E_DECODE_CAPTION", setting::kDecode, "a method for texts, which have no rows of codes",
           method.name);
  }
  if (method.shape() == PassShape::kTree && needs_of(method).draft_model) {
    refuse_method("E_DECODE_CAPTION", setting::kDecode, "a method whose drafts of a model stand in a line",
           method.name);
  }
  method = settle_method(method, aids, tokens);
  check_method(method, aids, tokens);
  if (guarantee_of(method) == Guarantee::kNone) {
    refuse_method("E_DECODE_CAPTION", setting::kAccept, "a rule that keeps the distribution of the text", method.rule);
  }
  return method;
}

void check_text_pruning(const DecodeMethod& method, const CaptionModel& model,
                        const PromptPruning& pruning, const std::string& prune_method) {
  if (pruning.pruner == nullptr || method.shape() == PassShape::kLine) return;
  // An image like most.
  const std::int64_t views = plan_preprocess(model.describe().policy, 640, 480).views;
  const PruneSession session(*pruning.pruner, pruned_model_of(model, views), pruning.budget,
                             pruning.seed, pruning.item);
  if (!session.asks(HookPoint::kBeforeLlm)) return;
  refuse_method("E_DECODE_CONFLICT", setting::kDecode,
         "a method whose drafts stand in a line, as --prune " + prune_method +
             " cuts prompts inside the model",
         method.name);
}

}  // namespace tessera
