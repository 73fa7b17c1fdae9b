#include "apps/runtime/prompt_bytes.h"

#include <algorithm>

#include "engine/core/error.h"
#include "engine/core/index.h"

namespace tessera {

void check_prompt_bytes(const ChatQuestion& asked, const TextTokenizer& tokenizer, std::int64_t places,
                        ErrorKind kind, const char* code) {
  std::size_t bytes = asked.turns.empty() ? asked.text.size() : 0;
  for (const ChatTurn& turn : asked.turns) {
    for (const ChatPart& part : turn.parts) bytes += part.text.size();
  }
  if (bytes <= to_size(places)) return;  // of one byte each
  std::size_t longest = 1;
  for (std::int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (!tokenizer.is_special(id)) longest = std::max(longest, tokenizer.token(id).size());
  }
  if (bytes / longest <= to_size(places)) return;
  throw Error({.kind = kind,
               .code = code,
               .where = "prompt",
               .expected = "at most " + std::to_string(longest * to_size(places)) +
                           " bytes, which " + std::to_string(places) + " tokens can have",
               .found = std::to_string(bytes)});
}

}  // namespace tessera
