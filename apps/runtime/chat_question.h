// What a model is asked: one question about all of its images, or a conversation.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tokenizers/text/chat_template.h"

namespace tessera {

struct ChatQuestion {
  std::string text = {};
  // In the place of the text: images stand at their parts, in order. Where none are shown, as in the
  // other branch of a guided text, these parts are left out.
  std::vector<ChatTurn> turns = {};

  ChatQuestion() = default;
  ChatQuestion(std::string question) : text(std::move(question)) {}  // NOLINT: one question
  ChatQuestion(const char* question) : text(question) {}             // NOLINT
  ChatQuestion(std::string question, std::vector<ChatTurn> conversation)
      : text(std::move(question)), turns(std::move(conversation)) {}

  // Parts of the turns that stand for images.
  std::int64_t image_parts() const {
    std::int64_t count = 0;
    for (const ChatTurn& turn : turns) {
      count += std::count_if(turn.parts.begin(), turn.parts.end(),
                             [](const ChatPart& part) { return part.is_image; });
    }
    return count;
  }
};

}  // namespace tessera
