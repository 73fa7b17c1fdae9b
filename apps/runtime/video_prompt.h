// A video as parts of a question: one placeholder in families that have a token for videos, else its
// frames as images, with the times at which they are shown where the family was trained on such
// words (SmolVLM).
#pragma once

#include <vector>

#include "tokenizers/text/chat_template.h"
#include "vision/image/preprocess.h"

namespace tessera {

// Appends the parts and the layout of each placeholder among them. `plan` is of a video;
// `class_tokens` of each frame are visual tokens too.
void add_video(const ChatForm& form, const PreprocessPlan& plan, std::int64_t class_tokens,
              std::vector<ChatPart>& parts, std::vector<ImageLayout>& layouts);

// "six", "twenty-one", "one hundred and five": as num2words writes numbers below 1000; digits
// beyond.
std::string number_in_words(std::int64_t number);

}  // namespace tessera
