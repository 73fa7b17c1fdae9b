// Chat templates in Jinja's language, as the folders of published models carry them, rendered as
// Python's Jinja2 does in the environment of transformers: sandboxed, blocks trimmed, loop
// controls, `generation` blocks, `raise_exception`, `strftime_now` and its `tojson`.
//
// A template is a stranger's file. It sees the values that it is given and nothing else; its steps,
// depth, memory and output are bounded.
#pragma once

#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/core/json.h"

namespace tessera {

struct TemplateLimits {
  std::int64_t max_steps = 50'000'000;  // values and bytes looked at, about
  std::size_t max_bytes = std::size_t{256} << 20;
  std::size_t max_output_bytes = std::size_t{16} << 20;
  int max_depth = 1000;  // of statements, expressions and macros
};

// What a template is rendered with. Json stays the caller's and lives as long as the call.
struct TemplateInput {
  const Json* messages = nullptr;   // an array of objects
  const Json* tools = nullptr;      // null: none
  const Json* documents = nullptr;  // null: none
  bool add_generation_prompt = true;
  // Variables whose texts are the model's own, "bos_token" and the like.
  std::vector<std::pair<std::string, std::string>> special_tokens;
  const Json* variables = nullptr;  // further ones, an object; null: none
  std::tm now{};                    // what strftime_now() writes
};

// A part of a prompt: texts from messages, tools and variables are data, all else is the
// template's.
struct RenderedPart {
  std::string text;
  bool from_data = false;
  bool operator==(const RenderedPart&) const = default;
};
using Rendered = std::vector<RenderedPart>;
std::string rendered_text(const Rendered& rendered);

class ChatTemplate {
 public:
  static constexpr std::size_t kMaxSourceBytes = std::size_t{1} << 20;

  // `file` is the name in messages. Error kModel, with line and column: E_TEMPLATE_SYNTAX,
  // E_TEMPLATE_UNSUPPORTED, E_TEMPLATE_DEPTH, E_TEMPLATE_SIZE, E_TEMPLATE_UTF8.
  static ChatTemplate parse(std::string_view source, const std::string& file);

  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  // The prompt; neighbours differ in from_data. A role that chats know ("user", "system", ...) is
  // not data. Error kModel with line and column: E_TEMPLATE_VALUE for an operation that Python
  // refuses, E_TEMPLATE_LIMIT, E_TEMPLATE_UNSUPPORTED; kUsage, E_TEMPLATE_RAISED, when the template
  // refuses the conversation.
  Rendered render(const TemplateInput& input, const TemplateLimits& limits = {}) const;

  // Whether the template reads `name` anywhere: a cheap look, for choosing what to give it.
  bool names(std::string_view name) const;

 private:
  struct Parts;
  explicit ChatTemplate(std::unique_ptr<const Parts> parts);
  std::unique_ptr<const Parts> parts_;
};

}  // namespace tessera
