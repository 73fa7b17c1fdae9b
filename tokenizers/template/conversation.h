// A conversation as a file has it: a list of messages, or an object of messages, tools, documents
// and further variables of the template.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "tokenizers/template/template.h"

namespace tessera {

struct Conversation {
  std::shared_ptr<const Json> messages, tools, documents, variables;  // null: none
  bool add_generation_prompt = true;
};

// Keys of messages whose value is null are dropped, and what a model thought has the names that
// templates look for, as transformers does. Error kUsage: E_JSON*, E_CHAT_FILE for what is no
// conversation.
Conversation read_conversation(std::string_view text, const std::string& file);

// What a template is given; `conversation` is borrowed.
TemplateInput input_of(const Conversation& conversation);

}  // namespace tessera
