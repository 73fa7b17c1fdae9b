// Flags that choose a draft model of texts, and what it sees of the images.
#pragma once

#include <optional>
#include <string>

#include "apps/runtime/caption_draft.h"
#include "engine/core/setting.h"

namespace CLI {
class App;
}

namespace tessera {

struct TextDraftFlags {
  std::optional<std::string> model, prune, keep;
};

// How texts are decoded, by which method and how wide.
void add_text_decode_flags(CLI::App& app, SettingValues& values);

// Those of loop_settings().
void add_loop_flags(CLI::App& app, SettingValues& values);

// --model-draft alone, of texts.
void text_draft_flag(CLI::App& app, std::optional<std::string>& target);

void add_text_draft_flags(CLI::App& app, TextDraftFlags& flags);

// Error kUsage for methods that do not exist, for what can be no count, and for flags without
// --model-draft.
DraftChoice draft_choice(const TextDraftFlags& flags);

}  // namespace tessera
