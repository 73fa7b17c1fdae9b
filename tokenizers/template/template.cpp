#include "tokenizers/template/template.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "engine/core/index.h"
#include "tokenizers/template/interpreter.h"

namespace tessera {

struct ChatTemplate::Parts {
  jinja::Program program;
};

namespace {

using jinja::Heap;
using jinja::MarkedText;
using jinja::Value;

constexpr int kMaxDataDepth = 64;

// Roles that a chat's program writes, not its users.
constexpr std::array<std::string_view, 9> kRoles = {"system", "user",      "assistant",
                                                    "tool",   "developer", "function",
                                                    "model",  "ipython",   "environment"};

class DataReader {
 public:
  explicit DataReader(Heap& heap) : heap_(heap) {}

  Value read(const Json& json, int depth) {
    if (depth > kMaxDataDepth) {
      jinja::trouble_limit("data nested at most " + std::to_string(kMaxDataDepth) + " deep",
                           "more");
    }
    switch (json.type()) {
      case Json::value_t::boolean:
        return Value::boolean(json.get<bool>());
      case Json::value_t::number_integer:
        return Value::of(json.get<std::int64_t>());
      case Json::value_t::number_unsigned: {
        const auto number = json.get<std::uint64_t>();
        if (number <= INT64_MAX) return Value::of(to_index(number));
        jinja::trouble_limit("integers of 64 bits", "a larger one");
      }
      case Json::value_t::number_float:
        return Value::of(json.get<double>());
      case Json::value_t::string:
        return heap_.text(MarkedText(json.get_ref<const std::string&>(), true));
      case Json::value_t::array: {
        std::vector<Value> items;
        for (const Json& item : json) items.push_back(read(item, depth + 1));
        return heap_.list(std::move(items));
      }
      case Json::value_t::object:
        return read_object(json, depth);
      default:
        return Value::none();
    }
  }

 private:
  Value read_object(const Json& json, int depth) {
    jinja::DictObject* out = heap_.dict();
    for (const auto& [key, value] : json.items()) {
      heap_.take(2 * sizeof(Value));
      out->entries.emplace_back(heap_.text(MarkedText(key, true)), read_entry(key, value, depth));
    }
    return Value::of(out);
  }

  Value read_entry(const std::string& key, const Json& value, int depth) {
    if (key == "role" && value.is_string()) {
      const auto& role = value.get_ref<const std::string&>();
      if (std::find(kRoles.begin(), kRoles.end(), role) != kRoles.end()) return heap_.text(role);
    }
    return read(value, depth + 1);
  }

  Heap& heap_;
};

using Variables = std::vector<std::pair<std::string_view, Value>>;

Variables variables_of(Heap& heap, const TemplateInput& input) {
  DataReader reader(heap);
  const auto data = [&](const Json* json) {
    return json == nullptr ? Value::none() : reader.read(*json, 0);
  };
  Variables out = {{"messages", data(input.messages)},
                   {"tools", data(input.tools)},
                   {"documents", data(input.documents)},
                   {"add_generation_prompt", Value::boolean(input.add_generation_prompt)}};
  const auto set = [&](std::string_view name, const Value& value) {
    const auto found = std::find_if(out.begin(), out.end(),
                                    [&](const auto& known) { return known.first == name; });
    if (found == out.end())
      out.emplace_back(name, value);
    else
      found->second = value;
  };
  for (const auto& [name, text] : input.special_tokens) set(name, heap.text(text));
  if (input.variables != nullptr) {
    for (const auto& [name, value] : input.variables->items()) {
      set(*heap.name(name), reader.read(value, 0));
    }
  }
  return out;
}

}  // namespace

ChatTemplate::ChatTemplate(std::unique_ptr<const Parts> parts) : parts_(std::move(parts)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

ChatTemplate ChatTemplate::parse(std::string_view source, const std::string& file) {
  auto parts = std::make_unique<Parts>();
  parts->program = jinja::parse_program(jinja::make_source(source, file, kMaxSourceBytes));
  return ChatTemplate(std::move(parts));
}

Rendered ChatTemplate::render(const TemplateInput& input, const TemplateLimits& limits) const {
  jinja::Interpreter interpreter(parts_->program, limits, input.now);
  Variables variables;
  try {
    variables = variables_of(interpreter.heap(), input);
  } catch (const jinja::Trouble& trouble) {
    throw Error({.kind = ErrorKind::kUsage,
                 .code = trouble.code,
                 .file = parts_->program.source.file,
                 .where = "conversation",
                 .expected = trouble.expected,
                 .found = trouble.found});
  }
  const MarkedText text = interpreter.run(std::move(variables));
  Rendered out;
  std::size_t begin = 0;
  for (const MarkedText::Run& run : text.runs()) {
    out.push_back({std::string(text.bytes().substr(begin, run.end - begin)), run.from_data});
    begin = run.end;
  }
  return out;
}

bool ChatTemplate::names(std::string_view name) const {
  const std::string& text = parts_->program.source.text;
  return text.find(name) != std::string::npos;
}

std::string rendered_text(const Rendered& rendered) {
  std::string out;
  for (const RenderedPart& part : rendered) out += part.text;
  return out;
}

}  // namespace tessera
