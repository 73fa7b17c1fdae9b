#include "tokenizers/template/conversation.h"

#include <nlohmann/json.hpp>

namespace tessera {

namespace {

[[noreturn]] void refuse_conversation(const std::string& file, std::string where,
                                      std::string expected, std::string found) {
  throw Error({.kind = ErrorKind::kUsage,
               .code = "E_CHAT_FILE",
               .file = file,
               .where = std::move(where),
               .expected = std::move(expected),
               .found = std::move(found)});
}

// "reasoning_content" is the name that most templates read, "thinking" that of some.
void name_thoughts(Json& message) {
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
    const auto found = message.find(name);
    if (found == message.end()) continue;
    const Json thought = *found;
    if (!message.contains("thinking")) message["thinking"] = thought;
    message["reasoning_content"] = thought;
    return;
  }
}

Json normalized(const Json& messages, const std::string& file) {
  if (!messages.is_array()) {
    refuse_conversation(file, "messages", "a list of messages", std::string(messages.type_name()));
  }
  Json out = Json::array();
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const Json& message = messages[i];
    if (!message.is_object() || !message.contains("role") || !message["role"].is_string()) {
      refuse_conversation(file, "messages[" + std::to_string(i) + "]",
                          "an object with a role and a content", std::string(message.type_name()));
    }
    Json kept = Json::object();
    for (const auto& [key, value] : message.items()) {
      if (!value.is_null()) kept[key] = value;
    }
    name_thoughts(kept);
    out.push_back(std::move(kept));
  }
  return out;
}

}  // namespace

Conversation read_conversation(std::string_view text, const std::string& file) {
  constexpr std::size_t kMaxBytes = std::size_t{16} << 20;
  const Json json =
      parse_json(text, file, {.max_bytes = kMaxBytes, .max_depth = 48, .kind = ErrorKind::kUsage});
  Conversation out;
  if (json.is_array()) {
    out.messages = std::make_shared<const Json>(normalized(json, file));
    return out;
  }
  if (!json.is_object() || !json.contains("messages")) {
    refuse_conversation(file, "$", "a list of messages, or an object with \"messages\"",
                        std::string(json.type_name()));
  }
  Json variables = Json::object();
  for (const auto& [key, value] : json.items()) {
    if (key == "messages") {
      out.messages = std::make_shared<const Json>(normalized(value, file));
    } else if (key == "tools" || key == "documents") {
      if (!value.is_array() && !value.is_null()) {
        refuse_conversation(file, key, "a list", std::string(value.type_name()));
      }
      if (value.is_null()) continue;
      (key == "tools" ? out.tools : out.documents) = std::make_shared<const Json>(value);
    } else if (key == "add_generation_prompt") {
      if (!value.is_boolean()) refuse_conversation(file, key, "true or false", value.dump());
      out.add_generation_prompt = value.get<bool>();
    } else {
      variables[key] = value;
    }
  }
  out.variables = std::make_shared<const Json>(std::move(variables));
  return out;
}

TemplateInput input_of(const Conversation& conversation) {
  TemplateInput out;
  out.messages = conversation.messages.get();
  out.tools = conversation.tools.get();
  out.documents = conversation.documents.get();
  out.variables = conversation.variables.get();
  out.add_generation_prompt = conversation.add_generation_prompt;
  return out;
}

}  // namespace tessera
