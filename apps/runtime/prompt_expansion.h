// Short prompts rewritten by a text model as what an image is to show.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/runtime/complete_task.h"
#include "apps/runtime/facts.h"

namespace tessera {

struct ExpandedPrompt {
  std::string text;
  std::optional<PromptExpansion> expansion;
};

// The prompts in their order; nothing once `stop` said so. Each is one question of the model's chat
// template and answered greedily: a prompt gives one text, whatever stands next to it. Of `options`
// model, device, cuda, threads and storage count. The model is freed before this returns.
// Error kUsage: E_CHAT_TEMPLATE for a model without one, E_TEXT_LENGTH for a prompt that leaves no
// room; kGeneral, E_EXPAND_EMPTY, where it answers nothing.
std::optional<std::vector<ExpandedPrompt>> expand_prompts(CompleteOptions options,
                                                          std::span<const std::string> prompts,
                                                          const std::function<bool()>& stop);

// What the model is asked.
std::string expansion_question(std::string_view prompt);
// The answer as a prompt: one line, blanks single, quotation marks around all of it away. Of an
// answer that was cut short the whole sentences alone, if there is one.
std::string expansion_of(std::string_view answer, bool cut_short);

}  // namespace tessera
