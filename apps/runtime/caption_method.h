// How texts may be written: methods that texts can have, and what goes with pruning.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "apps/runtime/image_prompt.h"
#include "engine/core/setting.h"
#include "engine/decoding/decode_method.h"

namespace tessera {

namespace setting {

inline constexpr Setting kTextModelDraft{
    .name = "model-draft",
    .kind = SettingKind::kText,
    .help = "a model of the same vocabulary that drafts; the text stays the model's own",
    .otherwise = "none",
    .doors = Door::kCaption,
    .changes_bytes = false};

}  // namespace setting

// Rows that choose how texts are decoded, those of every loop included.
std::span<const Setting* const> text_method_rows();

// Error kUsage for a method that texts of so many tokens cannot have, or that bends their
// distribution.
DecodeMethod settle_text_method(DecodeMethod method, const DecodeAids& aids, std::int64_t tokens);

// The method that these rows ask for; others of `given` are not read. With a draft model: equality
// with a window found by the clock (auto) or of fixed width (draft). Without a window of its own at
// most `max_tokens` wide. Error kUsage for a method that drafts in another way than by the draft
// model that there is, for "draft" without one, and for a window of a method that does not draft.
DecodeMethod text_method(const SettingValues& given, bool draft_model, std::int64_t max_tokens);

// Error kUsage E_DECODE_CONFLICT for drafts that branch after prompts that are cut inside the
// model.
void check_text_pruning(const DecodeMethod& method, const CaptionModel& model,
                        const PromptPruning& pruning, const std::string& prune_method);

}  // namespace tessera
