// How texts may be written: methods that texts can have, and what goes with pruning.
#pragma once

#include <cstdint>
#include <string>

#include "apps/runtime/image_prompt.h"
#include "engine/decoding/decode_method.h"

namespace tessera {

// Error kUsage for a method that texts of so many tokens cannot have, or that bends their
// distribution.
DecodeMethod settle_text_method(DecodeMethod method, const DecodeAids& aids, std::int64_t tokens);

// Error kUsage E_DECODE_CONFLICT for drafts that branch after prompts that are cut inside the
// model.
void check_text_pruning(const DecodeMethod& method, const CaptionModel& model,
                        const PromptPruning& pruning, const std::string& prune_method);

}  // namespace tessera
