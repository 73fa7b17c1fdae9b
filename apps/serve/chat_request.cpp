#include "apps/serve/chat_request.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "apps/serve/service.h"
#include "engine/core/index.h"
#include "engine/sampling/processor_settings.h"
#include "engine/sampling/sampling_settings.h"

namespace tessera {

namespace {

// What "logit_bias" gives.
constexpr std::string_view kBiasSetting = setting::kSequenceBias.name;
constexpr std::string_view kTemperatureSetting = setting::kTemperature.name;
constexpr std::size_t kMaxImageBytes = std::size_t{64} << 20;
constexpr std::int64_t kMaxChoices = 8, kMaxTextTokens = 1 << 20;
constexpr std::size_t kMaxMessages = 1024, kMaxParts = 256, kMaxStops = 16;

// What a part says next to what is read, such as marks for caches.
void note_others(const Json& object, const std::vector<std::string_view>& read,
                 const std::string& field, ChatOrder& order) {
  for (const auto& [key, value] : object.items()) {
    if (value.is_null() || std::find(read.begin(), read.end(), key) != read.end()) continue;
    order.notes.push_back(field + "." + escape_for_terminal(key, 32) + " is without effect");
  }
}

// A part of a message: text, or an image.
void take_part(const Service& service, const Json& part, const std::string& field,
               api::ChatTurn& turn, ChatOrder& order) {
  if (!part.is_object() || !part.contains("type") || !part["type"].is_string()) {
    refuse_field(field, "an object with a type", part.type_name());
  }
  const auto& type = part["type"].get_ref<const std::string&>();
  const auto string_of = [](const Json& object, const char* key) -> const std::string* {
    const auto at = object.find(key);
    return at != object.end() && at->is_string() ? at->get_ptr<const std::string*>() : nullptr;
  };
  if (type == "text") {
    const std::string* const text = string_of(part, "text");
    if (text == nullptr) refuse_field(field + ".text", "a string", "none");
    note_others(part, {"type", "text"}, field, order);
    turn.parts.push_back({.text = *text});
    return;
  }
  if (type != "image_url") {
    refuse_field(field + ".type", "text or image_url", "'" + escape_for_terminal(type, 32) + "'");
  }
  const auto image = part.find("image_url");
  const std::string* url = string_of(part, "image_url");
  if (image != part.end() && image->is_object()) {
    url = string_of(*image, "url");
    static constexpr std::string_view kOwnDetail = "auto";  // the model's
    const std::string* const detail = string_of(*image, "detail");
    if (detail != nullptr && *detail != kOwnDetail) {
      order.notes.push_back(field + ".detail is without effect");
    }
    note_others(*image, {"url", "detail"}, field, order);
  }
  note_others(part, {"type", "image_url"}, field, order);
  if (url == nullptr) refuse_field(field + ".image_url.url", "a data URL", "none");
  order.images.push_back(image_bytes(service, *url, field + ".image_url.url"));
  order.image_bytes += order.images.back().size();
  if (order.image_bytes > kMaxImageBytes) {
    refuse_field(field + ".image_url.url", "at most 64 MiB of images in a request", "more", "", "E_MEDIA");
  }
  order.image_fields.push_back(field + ".image_url");
  turn.parts.push_back({.image = true});
}

void take_messages(const Service& service, Body& body, ChatOrder& order) {
  const Json* const list = body.any("messages");
  if (list == nullptr || !list->is_array() || list->empty() || list->size() > kMaxMessages) {
    refuse_field("messages", "a list of 1 to " + std::to_string(kMaxMessages) + " messages",
                 list == nullptr ? "none" : "another");
  }
  for (std::size_t i = 0; i < list->size(); ++i) {
    const std::string field = "messages[" + std::to_string(i) + "]";
    const Json& message = (*list)[i];
    if (!message.is_object()) refuse_field(field, "an object", message.type_name());
    api::ChatTurn turn{.role = ""};
    const Json* content = nullptr;
    for (const auto& [key, value] : message.items()) {
      if (key == "role") {
        if (!value.is_string()) refuse_field(field + ".role", "a string", value.type_name());
        turn.role = value.get<std::string>();
        if (turn.role == "developer") turn.role = "system";
      } else if (key == "content") {
        content = &value;
      } else if (key == "name") {
        order.notes.push_back(field + ".name is without effect");
      } else if (!value.is_null() && !(value.is_array() && value.empty())) {
        refuse_field(field + "." + escape_for_terminal(key, 32), "role and content",
                     "another field");
      }
    }
    if (!message.contains("role")) {
      refuse_field(field + ".role", "system, user or assistant", "none");
    }
    if (turn.role != "system" && turn.role != "user" && turn.role != "assistant") {
      refuse_field(field + ".role", "system, user or assistant",
                   "'" + escape_for_terminal(turn.role, 32) + "'");
    }
    const bool silent = content == nullptr || content->is_null();
    const bool readable =
        silent ? turn.role == "assistant" : content->is_string() || content->is_array();
    if (!readable) refuse_field(field + ".content", "a string, or a list of parts", "none");
    if (silent) {
      turn.parts.push_back({.text = ""});
    } else if (content->is_string()) {
      turn.parts.push_back({.text = content->get<std::string>()});
    } else {
      if (content->size() > kMaxParts) {
        refuse_field(field + ".content", "at most " + std::to_string(kMaxParts) + " parts",
                     std::to_string(content->size()));
      }
      for (std::size_t part = 0; part < content->size(); ++part) {
        take_part(service, (*content)[part], field + ".content[" + std::to_string(part) + "]", turn,
                  order);
      }
    }
    order.turns.push_back(std::move(turn));
  }
}

// Fields that must say nothing: what they ask for is not done.
void refuse_others(Body& body) {
  const auto refuse_unless = [&](const char* field, bool (*empty)(const Json&),
                                 const char* expected) {
    const Json* const value = body.any(field);
    if (value != nullptr && !empty(*value)) refuse_field(field, expected, "another");
  };
  const auto is_empty = [](const Json& value) { return value.empty(); };
  refuse_unless("tools", is_empty, "none, as no tools are called");
  refuse_unless("functions", is_empty, "none, as no tools are called");
  for (const char* field : {"tool_choice", "function_call"}) {
    refuse_unless(
        field, [](const Json& value) { return value == "none" || value == "auto"; },
        "none, as no tools are called");
  }
  refuse_unless(
      "response_format",
      [](const Json& value) {
        return value.is_object() && value.contains("type") && value["type"] == "text";
      },
      "{\"type\": \"text\"}");
  for (const char* field : {"store", "metadata", "service_tier", "parallel_tool_calls",
                            "reasoning_effort", "safety_identifier", "prompt_cache_key",
                            "prompt_cache_retention", "prediction", "verbosity"}) {
    body.without_effect(field, {"auto", "default"});
  }
}

// Of empty ones the note is one.
void take_stops(const Json& stop, ChatOrder& order) {
  const Json list = stop.is_array() ? stop : Json::array({stop});
  if (list.size() > kMaxStops) {
    refuse_field("stop", "at most " + std::to_string(kMaxStops) + " texts",
                 std::to_string(list.size()));
  }
  bool empty = false;
  for (const Json& text : list) {
    if (!text.is_string()) refuse_field("stop", "a string, or a list of them", text.type_name());
    if (text == "") {
      empty = true;
    } else {
      order.stop.push_back(text.get<std::string>());
    }
  }
  if (empty) order.notes.push_back("an empty stop is without effect");
}

void take_limits(Body& body, ChatOrder& order) {
  body.skip("max_tokens", -1);  // as long as may be
  const auto most = body.integer("max_completion_tokens", 1, kMaxTextTokens);
  const auto older = body.integer("max_tokens", 1, kMaxTextTokens);
  if (most && older && *most != *older) {
    refuse_field("max_tokens", "the same as max_completion_tokens", std::to_string(*older));
  }
  order.max_tokens = most ? *most : older.value_or(0);
  order.choices = body.integer("n", 1, kMaxChoices).value_or(1);
  body.skip("seed", -1);  // random
  const auto seed = body.integer("seed", 0, kMaxClientSeed);
  if (seed) order.seed = narrow<std::uint64_t>(*seed);
  order.stream = body.flag("stream").value_or(false);
  if (const Json* const options = body.any("stream_options")) {
    const auto at = options->is_object() ? options->find("include_usage") : options->end();
    if (!options->is_object() || (at != options->end() && !at->is_boolean())) {
      refuse_field("stream_options", "{\"include_usage\": true or false}", "another");
    }
    order.usage = at != options->end() && *at == true;
    note_others(*options, {"include_usage"}, "stream_options", order);
  }
  const bool logprobs = body.flag("logprobs").value_or(false);
  const auto top = body.integer("top_logprobs", 0, kMaxTopLogprobs);
  if (top && *top > 0 && !logprobs) {
    refuse_field("top_logprobs", "logprobs: true next to it", "none");
  }
  if (logprobs) order.logprobs = top.value_or(0);
  if (const Json* const stop = body.any("stop")) take_stops(*stop, order);
}

// What may answer, the first that can. Images are answers where they are asked for, or where a
// model does nothing else.
std::vector<api::Task> tasks_of(Body& body, const ChatOrder& order) {
  const Json* const kinds = body.any("modalities");
  bool text = kinds == nullptr, image = false;
  for (std::size_t at = 0; kinds != nullptr && kinds->is_array() && at < kinds->size(); ++at) {
    text = text || (*kinds)[at] == "text";
    image = image || (*kinds)[at] == "image";
  }
  if (!text || (kinds != nullptr && kinds->size() != (image ? 2u : 1u))) {
    refuse_field("modalities", "[\"text\"] or [\"text\", \"image\"]", "another");
  }
  if (image) return {api::Task::kAnswer};
  if (!order.images.empty()) return {api::Task::kDescribe};
  std::vector<api::Task> out = {api::Task::kComplete, api::Task::kDescribe};
  if (kinds == nullptr) out.push_back(api::Task::kAnswer);
  return out;
}

// Which of the models answers: that of the name, else the first that can.
void choose_model(const Service& service, Body& body, ChatOrder& order) {
  const std::string name = body.text("model").value_or("");
  const std::vector<api::Task> tasks = tasks_of(body, order);
  const ServedModel* found = nullptr;
  for (const api::Task task : tasks) {
    const ServedModel* const model = service.desk().find(name, task);
    if (model == nullptr) continue;
    if (found == nullptr) found = model;
    if (!model->serves(task)) continue;
    order.model = model->name;
    order.task = task;
    return;
  }
  if (found != nullptr) {
    const bool answers = tasks.front() == api::Task::kAnswer;
    const bool texts = order.images.empty() && !found->tasks.empty();
    const api::Task wanted = texts ? api::Task::kComplete : api::Task::kDescribe;
    service.refuse_task(*found, answers ? api::Task::kAnswer : wanted);
  }
  service.refuse_model(name, tasks);
}

// Answers with images are to one question, and end by themselves.
void check_answer(const ChatOrder& order) {
  const auto refuse = [](const char* field, const char* expected) {
    refuse_field(field, std::string(expected) + ", as the answer has texts and images", "another");
  };
  const std::vector<api::ChatPart>& parts = order.turns.front().parts;
  const bool one = order.turns.size() == 1 && order.turns.front().role == "user";
  if (!one || parts.size() != 1 || parts.front().image) {
    refuse("messages", "one message of the user, a text");
  }
  if (!order.stop.empty()) refuse("stop", "none");
  if (order.logprobs >= 0) refuse("logprobs", "false");
  if (order.biased) refuse("logit_bias", "none");
}

// {"ID": NUMBER}: a bias on sequences of one id.
std::string biases_of(const Json& given) {
  constexpr const char* kField = "logit_bias";
  constexpr double kMaxBias = 100;
  if (!given.is_object()) refuse_field(kField, "an object of token ids", given.type_name());
  std::string biases;
  for (const auto& [id, bias] : given.items()) {
    const bool number = id == "0" || (!id.empty() && id[0] != '0' && id.size() < 11 &&
                                      id.find_first_not_of("0123456789") == std::string::npos);
    if (!number) refuse_field(kField, "ids of tokens", "'" + escape_for_terminal(id, 32) + "'");
    if (!bias.is_number() || !(std::abs(bias.get<double>()) <= kMaxBias)) {
      refuse_field(kField, "numbers from -100 to 100",
                   bias.is_number() ? bias.dump() : bias.type_name());
    }
    biases += (biases.empty() ? "" : ",") + id + ":" + bias.dump();
  }
  return biases;
}

// The last of a name, which counts; null: none.
template <typename Settings>
auto* find_setting(Settings& settings, std::string_view name) {
  const auto at = std::find_if(settings.rbegin(), settings.rend(),
                               [&](const auto& one) { return one.name == name; });
  return at == settings.rend() ? nullptr : &*at;
}

void add_biases(const std::string& biases, ChatOrder& order) {
  api::Setting* const own = find_setting(order.settings, kBiasSetting);
  if (own == nullptr) return order.settings.push_back({std::string(kBiasSetting), biases});
  own->value = own->value.text() + "," + biases;
  order.biased = false;  // alone
}

// A text is as long as the model was opened for, at most; its end says that it was cut short.
void bound_length(const Service& service, ChatOrder& order) {
  constexpr std::string_view kName = "max-tokens";
  const api::Settings usual = service.desk().usual(order.task);
  std::string most;
  for (const api::SettingInfo& info : api::setting_table(order.task)) {
    if (info.name == kName) most = info.without;
  }
  for (const api::Settings* settings : {&usual, &std::as_const(order.open)}) {
    if (const api::Setting* const one = find_setting(*settings, kName)) most = one->value.text();
  }
  const std::int64_t bound = std::atoll(most.c_str());
  if (bound < 1 || order.max_tokens <= bound) return;
  order.max_tokens = bound;
  order.notes.push_back("max_tokens is at most " + most + " here");
}

// Answers with images are drawn, texts where they have a temperature.
bool draws(const ChatOrder& order) {
  const api::Setting* const given = find_setting(order.settings, kTemperatureSetting);
  if (given == nullptr) return order.task == api::Task::kAnswer;
  return !(std::atof(given->value.text().c_str()) <= 0);
}

}  // namespace

AnyRequest ChatOrder::request(std::int64_t choice) const {
  const std::uint64_t own = seed.value_or(0) + narrow<std::uint64_t>(choice);
  if (task == api::Task::kAnswer) {
    return api::AnswerRequest{
        .prompt = turns.front().parts.front().text, .seed = own, .settings = settings};
  }
  if (task == api::Task::kComplete) {
    return api::CompleteRequest{.chat = true,
                                .turns = turns,
                                .max_tokens = max_tokens,
                                .seed = own,
                                .settings = settings,
                                .stop = stop,
                                .logprobs = logprobs};
  }
  return api::DescribeRequest{.turns = turns,
                              .encoded = images,
                              .max_tokens = max_tokens,
                              .seed = own,
                              .settings = settings,
                              .stop = stop,
                              .logprobs = logprobs};
}

namespace {

// The part that an error of reading pictures is about; null: it is about none, or not known.
const std::string* image_of(const ChatOrder& order, const api::Error& error) {
  const std::string& code = error.code();
  const bool of_picture = code.starts_with("E_PICTURE_") || code.starts_with("E_PNG_");
  if (!of_picture || code == "E_PICTURE_HELPER") return nullptr;
  for (std::size_t at = 0; at < order.image_fields.size(); ++at) {
    const bool named = error.file() == "encoded image " + std::to_string(at);  // the library's name
    if (named || order.image_fields.size() == 1) return &order.image_fields[at];
  }
  return nullptr;
}

}  // namespace

api::Error chat_error(const ChatOrder& order, const api::Error& error) {
  api::ErrorKind kind = error.kind();
  std::string where = error.where();
  const std::string& code = error.code();
  constexpr std::string_view kOfTexts[] = {"E_TOK_TEXT_SIZE",   "E_TOK_BUDGET",    "E_TEMPLATE_LIMIT",
                                           "E_TEMPLATE_RAISED", "E_PROMPT_LENGTH", "E_PROMPT_EMPTY"};
  const bool of_texts = std::find(std::begin(kOfTexts), std::end(kOfTexts), code) != std::end(kOfTexts);
  if (of_texts || (code == "E_TEXT_LENGTH" && where == "prompt")) {
    kind = api::ErrorKind::kUsage;
    where = "messages";
  } else if (order.biased && where == "--" + std::string(kBiasSetting)) {
    where = "logit_bias";
  } else if (const std::string* const field = image_of(order, error)) {
    where = *field;
  }
  return api::Error({kind, code, error.file(), where, error.expected(), error.found(), error.hint()});
}

ChatOrder read_chat(const Service& service, Body& body) {
  ChatOrder order;
  take_messages(service, body, order);
  choose_model(service, body, order);
  take_limits(body, order);
  refuse_others(body);
  const Json* const logit_bias = body.any("logit_bias");
  order.biased = logit_bias != nullptr && !logit_bias->empty();
  if (order.task == api::Task::kAnswer) check_answer(order);
  if (order.image_bytes > 0) {
    order.held = service.hold_images(order.image_bytes * to_size(order.choices));
  }
  const auto temperature = body.number("temperature", 0, 100);
  body.skip("top_k", -1);  // off, as some say it
  Body::Settings settings = body.settings(order.task);
  if (temperature && find_setting(settings.request, kTemperatureSetting) != nullptr) {
    refuse_field(kTemperatureSetting, "each setting once", "temperature next to it");
  }
  order.settings = std::move(settings.request);
  order.open = std::move(settings.open);
  if (temperature) order.settings.push_back({std::string(kTemperatureSetting), *temperature});
  if (!order.seed && draws(order)) order.seed = random_client_seed();
  if (order.biased) add_biases(biases_of(*logit_bias), order);
  if (order.task != api::Task::kAnswer) {
    bound_length(service, order);
  } else if (order.max_tokens > 0) {
    order.open.push_back({"max-tokens", order.max_tokens});
  }
  for (const std::string& note : body.notes()) order.notes.push_back(note);
  return order;
}

}  // namespace tessera
