// What a request of a chat asks for: the fields of OpenAI's chats, and settings by their names.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apps/serve/answers.h"
#include "apps/serve/desk.h"

namespace tessera {

class Service;

struct ChatOrder {
  std::string model;
  api::Task task = api::Task::kDescribe;
  std::vector<api::ChatTurn> turns;
  std::vector<std::string> images;  // bytes of files, in the order of their parts
  std::size_t image_bytes = 0;      // of all of them
  std::shared_ptr<void> held = nullptr;  // room for them
  std::vector<std::string> image_fields;  // the parts, of the same order
  api::Settings open, settings;
  std::vector<std::string> stop;
  std::int64_t max_tokens = 0, choices = 1;
  std::int64_t logprobs = -1;  // as the library takes it
  std::optional<std::uint64_t> seed;
  bool stream = false, usage = false;
  bool biased = false;  // the setting of biases is what logit_bias says
  std::vector<std::string> notes;

  AnyRequest request(std::int64_t choice) const;
};

// An error of the library in the words of the request: the field that it is about, and kUsage where
// its texts are at fault.
api::Error chat_error(const ChatOrder& order, const api::Error& error);

// Error kUsage for what is not followed; what is without effect is noted.
ChatOrder read_chat(const Service& service, Body& body);

}  // namespace tessera
