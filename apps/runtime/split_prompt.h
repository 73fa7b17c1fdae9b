// Prompts of models whose tokenizers have no token for an image (the authors' LLaVA).
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tokenizers/text/chat_template.h"

namespace tessera {

// What stands between images is encoded piece by piece, each like a text of its own, with the
// tokenizer's beginning in front of the first piece alone; `image_id` stands for each `image` that
// is no user's text.
std::vector<std::int32_t> encode_around_images(const TextTokenizer& tokenizer, const Prompt& prompt,
                                               std::string_view image, std::int32_t image_id);

}  // namespace tessera
