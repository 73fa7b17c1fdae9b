#include "apps/runtime/caption_method.h"

#include <algorithm>

#include "apps/runtime/caption_model.h"
#include "apps/runtime/generation_parts.h"
#include "engine/decoding/loop_settings.h"

namespace tessera {

namespace {

[[noreturn]] void refuse_method(std::string code, const Setting& flag, std::string expected,
                                std::string found) {
  refuse_request(std::move(code), "--" + std::string(flag.name), std::move(expected),
                 std::move(found));
}

// Without a draft model, or with one.
DecodeMethod named_text_method(const std::string& name, bool draft_model) {
  constexpr std::int64_t kWidestDraft = 16;  // rows of a window that the clock may choose
  DecodeMethod method = text_method(name);
  const bool by_model = needs_of(method).draft_model;
  if (!draft_model) {
    if (by_model) {
      refuse_method("E_FLAG_MISSING", setting::kTextModelDraft,
                    "a draft model for --decode " + name, "none");
    }
    return method;
  }
  if (!method.adaptive && !by_model) {
    refuse_method("E_FLAG_CONFLICT", setting::kTextDecode, "auto or draft with --model-draft",
                  name);
  }
  if (method.adaptive) {
    method = text_method("draft");
    method.adaptive = true;
    method.window = kWidestDraft;
  }
  return method;
}

}  // namespace

std::span<const Setting* const> text_method_rows() {
  static const auto rows = [] {
    std::vector<const Setting*> out{&setting::kTextDecode, &setting::kTextWindow,
                                    &setting::kTextModelDraft};
    out.insert(out.end(), loop_settings().begin(), loop_settings().end());
    return out;
  }();
  return rows;
}

// What can draft a text: it has no rows above and no code table.
DecodeMethod settle_text_method(DecodeMethod method, const DecodeAids& aids, std::int64_t tokens) {
  if (!drafts_texts(method)) {
    refuse_method("E_DECODE_CAPTION", setting::kDrafter,
                  "none, lookup, recycling or model for texts", method.drafter);
  }
  if (aids.draft_model && !needs_of(method).draft_model) {
    refuse_method("E_DECODE_CONFLICT", setting::kModelDraft, "the drafter \"model\"",
                  "drafter " + method.drafter);
  }
  if (method.shape() == PassShape::kRows) {
    refuse_method("E_DECODE_CAPTION", setting::kDecode,
                  "a method for texts, which have no rows of codes", method.name);
  }
  if (method.shape() == PassShape::kTree && needs_of(method).draft_model) {
    refuse_method("E_DECODE_CAPTION", setting::kDecode,
                  "a method whose drafts of a model stand in a line", method.name);
  }
  method = settle_method(method, aids, tokens);
  check_method(method, aids, tokens);
  if (guarantee_of(method) == Guarantee::kNone) {
    refuse_method("E_DECODE_CAPTION", setting::kAccept,
                  "a rule that keeps the distribution of the text", method.rule);
  }
  return method;
}

DecodeMethod text_method(const SettingValues& given, bool draft_model, std::int64_t max_tokens) {
  const std::string name = given.text(setting::kTextDecode);
  DecodeMethod method = named_text_method(name, draft_model);
  if (given.has(setting::kTextWindow)) {
    if (!method.speculative()) {
      refuse_method("E_FLAG_CONFLICT", setting::kTextWindow, "a method that drafts",
                    "--decode " + name);
    }
    method.window = given.integer(setting::kTextWindow);
  } else {
    method.window = std::min(method.window, max_tokens);
  }
  set_loop(method, given);
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
