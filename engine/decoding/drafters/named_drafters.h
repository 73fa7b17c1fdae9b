// Drafters that are names: nobody, the best one there is, and a draft model, which whoever opens
// that model makes and hands to the parts.
#pragma once

#include "engine/decoding/drafters/context_drafter.h"
#include "engine/decoding/drafters/previous_frame_drafter.h"
#include "engine/decoding/drafters/table_drafters.h"

namespace tessera {

inline constexpr MethodPart kNoDrafterPart{.name = "none", .idle = true, .for_texts = true};

template <typename Real, typename Random>
struct NoDrafter {
  static std::unique_ptr<Drafter<Real, Random>> make(const SettingValues&, const DecodeAids&) {
    return nullptr;
  }
};

inline constexpr MethodPart kBestPart{
    .name = kBestDrafter,
    .needs = [](const SettingValues&,
                const VocabularyGrammar&) { return PartNeeds{.drafts = DraftUse::kIfThere}; },
    .for_texts = true,
    .stands_for =
        [](const DecodeAids& aids) {
          if (aids.texts) return kLookupPart.name;
          if (aids.grammar.grids > 1) return kPreviousFramePart.name;
          return aids.drafts != nullptr ? kContextPart.name : kUniformPart.name;
        }};

inline constexpr MethodPart kModelPart{
    .name = kModelDrafter,
    .needs = [](const SettingValues&,
                const VocabularyGrammar&) { return PartNeeds{.draft_model = true}; },
    .for_texts = true};

}  // namespace tessera
