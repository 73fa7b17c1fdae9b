// Log probabilities as answers and JSON lines hold them.
#pragma once

#include <span>

#include "apps/runtime/written_text.h"
#include "engine/core/json.h"

namespace tessera {

// A list of {token, logprob, bytes, top_logprobs}, in the form of OpenAI's chats: "token" is not
// always whole characters, "bytes" are exact.
Json logprobs_json(std::span<const TextToken> tokens);

}  // namespace tessera
