// How long a text may be for a model to read it, before anything is tokenized.
#pragma once

#include "apps/runtime/chat_question.h"
#include "tokenizers/text/tokenizer.h"

namespace tessera {

// Texts of more bytes than `places` of the longest token have cannot fit, and would take long to
// tokenize. Error of that kind and code, about "prompt".
void check_prompt_bytes(const ChatQuestion& asked, const TextTokenizer& tokenizer, std::int64_t places,
                        ErrorKind kind, const char* code);

}  // namespace tessera
