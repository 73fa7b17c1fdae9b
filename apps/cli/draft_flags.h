// Flags that choose a draft model of texts, and what it sees of the images.
#pragma once

#include <optional>
#include <string>

#include "apps/runtime/caption_draft.h"
#include "engine/decoding/decode_method.h"

namespace CLI {
class App;
}

namespace tessera {

struct TextDraftFlags {
  std::optional<std::string> model, prune, keep;
};

// Those of loop_settings().
void add_loop_flags(CLI::App& app, SettingValues& values);

void add_text_draft_flags(CLI::App& app, TextDraftFlags& flags);

// Error kUsage for methods that do not exist, for what can be no count, and for flags without
// --model-draft.
DraftChoice draft_choice(const TextDraftFlags& flags);

// The method of `--decode NAME` with a draft model: equality with a window found by the clock
// (auto) or of fixed width (draft); without --window at most `max_tokens`. Error kUsage for a name
// that drafts in another way or not at all, and for "draft" without a draft model.
DecodeMethod text_method(const std::string& name, bool draft_model, std::int64_t max_tokens);

}  // namespace tessera
