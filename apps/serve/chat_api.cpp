// POST /v1/chat/completions, with the fields and the chunks of OpenAI's chats and the settings of
// `tessera settings` beside them.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "apps/runtime/logprobs_json.h"
#include "apps/serve/orders.h"
#include "apps/serve/service.h"
#include "engine/core/index.h"

namespace tessera {

namespace {

constexpr std::int64_t kMaxChoices = 8, kMaxTextTokens = 1 << 20;
constexpr std::size_t kMaxMessages = 1024, kMaxParts = 256, kMaxStops = 16;

struct ChatOrder {
  std::string model;
  api::Task task = api::Task::kDescribe;
  std::vector<api::ChatTurn> turns;
  std::vector<std::string> images;  // bytes of files, in the order of their parts
  api::Settings open, settings;
  std::vector<std::string> stop;
  std::int64_t max_tokens = 0, choices = 1;
  std::int64_t logprobs = -1;  // as the library takes it
  std::optional<std::uint64_t> seed;
  bool stream = false, usage = false;
  std::vector<std::string> notes;

  AnyRequest request(std::int64_t choice) const {
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
};

Json logprobs_of_choice(const std::vector<api::TextToken>& tokens) {
  const auto choice = [](const api::TokenLogprob& one) {
    return TokenChoice{one.id, one.bytes, one.logprob};
  };
  std::vector<TextToken> own;
  for (const api::TextToken& each : tokens) {
    TextToken& made = own.emplace_back();
    made.token = choice(each.token);
    for (const api::TokenLogprob& one : each.top) made.top.push_back(choice(one));
  }
  return {{"content", logprobs_json(own)}, {"refusal", nullptr}};
}

Json patches_json(const std::vector<api::ViewPatches>& views) {
  Json out = Json::array();
  for (const api::ViewPatches& view : views) {
    out.push_back({{"image", view.image},
                   {"columns", view.columns},
                   {"rows", view.rows},
                   {"box", {view.left, view.top, view.width, view.height}},
                   {"kept", view.kept}});
  }
  return out;
}

// One request while its texts are written. The desk's thread calls it.
class ChatCall : public std::enable_shared_from_this<ChatCall> {
 public:
  ChatCall(Desk& desk, ChatOrder order, std::shared_ptr<HttpReply> reply)
      : orders_(desk), order_(std::move(order)), reply_(std::move(reply)) {
    choices_.resize(to_size(order_.choices));
    images_.resize(choices_.size(), Json::array());
  }

  void start(const std::string& client) {
    std::vector<Order> orders;
    for (std::size_t at = 0; at < choices_.size(); ++at) {
      orders.push_back({.client = client,
                        .model = order_.model,
                        .task = order_.task,
                        .open = order_.open,
                        .request = order_.request(to_index(at)),
                        .listener = std::make_shared<Listener>(shared_from_this(), at)});
    }
    order_.images.clear();
    orders_.add(std::move(orders));
    reply_->on_gone([weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->orders_.cancel();
    });
  }

 private:
  class Listener final : public OrderListener {
   public:
    Listener(std::shared_ptr<ChatCall> call, std::size_t at) : call_(std::move(call)), at_(at) {}
    void on_begin() override { call_->begin(at_); }
    void on_tokens(std::vector<api::TextToken>&& tokens) override { tokens_ = std::move(tokens); }
    void on_text(std::string_view more) override {
      call_->more(at_, more, std::exchange(tokens_, {}));
    }
    void on_description(api::Description&& made) override {
      Json visual = nullptr;
      if (made.visual_tokens > 0) {
        visual = {{"tokens", made.visual_tokens}, {"kept_tokens", made.kept_tokens}};
        if (made.kept_tokens < made.visual_tokens) visual["patches"] = patches_json(made.patches);
      }
      for (std::string& note : made.notes) call_->order_.notes.push_back(std::move(note));
      call_->done(at_, made, visual);
    }
    void on_completion(api::Completion&& made) override { call_->done(at_, made, nullptr); }
    void on_image(api::GeneratedImage&& made) override { call_->image(at_, made); }
    void on_answer(api::Answer&& made) override {
      call_->done(at_,
                  api::Completion{.text = std::move(made.text),
                                  .cut_short = made.cut_short,
                                  .tokens = made.tokens,
                                  .passes = made.passes,
                                  .prompt_tokens = made.prompt_tokens},
                  nullptr);
    }
    void on_error(const api::Error& error) override { call_->failed(error); }

   private:
    std::shared_ptr<ChatCall> call_;
    std::size_t at_;
    std::vector<api::TextToken> tokens_;  // of the text that comes next
  };

  Json head(const char* object) const {
    return {{"id", id_}, {"object", object}, {"created", created_}, {"model", order_.model}};
  }
  Json logprobs_of(const std::vector<api::TextToken>& tokens) const {
    return order_.logprobs < 0 ? Json(nullptr) : logprobs_of_choice(tokens);
  }
  void chunk(std::size_t at, Json delta, const Json& reason, Json logprobs = nullptr) {
    Json event = head("chat.completion.chunk");
    event["choices"] = Json::array({{{"index", at},
                                     {"delta", std::move(delta)},
                                     {"logprobs", std::move(logprobs)},
                                     {"finish_reason", reason}}});
    if (order_.usage) event["usage"] = nullptr;
    reply_->event("", event.dump(-1, ' ', false, Json::error_handler_t::replace));
  }

  void begin(std::size_t at) {
    if (over_ || !order_.stream) return;
    if (!begun_) reply_->begin_events();
    begun_ = true;
    chunk(at, {{"role", "assistant"}, {"content", ""}}, nullptr);
  }
  void more(std::size_t at, std::string_view text, const std::vector<api::TextToken>& tokens) {
    if (over_ || !order_.stream) return;
    chunk(at, {{"content", text}}, nullptr, logprobs_of(tokens));
  }

  // An image of the answer, as it stands after the text so far.
  void image(std::size_t at, const api::GeneratedImage& made) {
    if (over_) return;
    image_tokens_ += made.tokens;
    Json part = {{"type", "image_url"},
                 {"image_url", {{"url", "data:image/png;base64," + to_base64(made.png())}}}};
    if (order_.stream) return chunk(at, {{"images", Json::array({std::move(part)})}}, nullptr);
    images_[at].push_back(std::move(part));
  }

  template <typename Made>
  void done(std::size_t at, const Made& made, const Json& visual) {
    if (over_) return;
    const char* const reason = made.cut_short ? "length" : "stop";
    prompt_tokens_ = std::max(prompt_tokens_, made.prompt_tokens);
    reused_tokens_ = std::max(reused_tokens_, made.reused_tokens);
    tokens_ += made.tokens;
    passes_ += made.passes;
    if (!visual.is_null()) visual_ = visual;
    if (order_.stream) {
      chunk(at, Json::object(), reason);
    } else {
      choices_[at] = {{"index", at},
                      {"message", {{"role", "assistant"}, {"content", made.text}}},
                      {"logprobs", logprobs_of(made.listed)},
                      {"finish_reason", reason}};
      if (!images_[at].empty()) choices_[at]["message"]["images"] = std::move(images_[at]);
    }
    if (++done_ < choices_.size()) return;
    over_ = true;
    if (!order_.stream) {
      Json body = head("chat.completion");
      body["choices"] = choices_;
      add_facts(body);
      return reply_->send(json_answer(body));
    }
    if (order_.usage) {
      Json event = head("chat.completion.chunk");
      event["choices"] = Json::array();
      add_facts(event);
      reply_->event("", event.dump());
    }
    reply_->event("", "[DONE]");
    reply_->end();
  }
  void add_facts(Json& body) const {
    const std::int64_t written = tokens_ + image_tokens_;
    body["usage"] = {{"prompt_tokens", prompt_tokens_},
                     {"prompt_tokens_details", {{"cached_tokens", reused_tokens_}}},
                     {"completion_tokens", written},
                     {"total_tokens", prompt_tokens_ + written}};
    if (order_.task == api::Task::kAnswer) {
      body["usage"]["completion_tokens_details"] = {{"text_tokens", tokens_},
                                                    {"image_tokens", image_tokens_}};
    }
    body["passes"] = passes_;
    if (!visual_.is_null()) body["visual"] = visual_;
    if (order_.seed) body["seed"] = *order_.seed;
    if (!order_.notes.empty()) body["notes"] = order_.notes;
  }

  void failed(const api::Error& error) {
    if (over_) return;
    over_ = true;
    orders_.cancel();
    if (!begun_) return reply_->send(error_answer(error));
    reply_->event("", error_object(error).dump());
    reply_->end();
  }

  Orders orders_;
  ChatOrder order_;
  std::shared_ptr<HttpReply> reply_;
  std::vector<Json> choices_, images_;  // of each choice
  std::string id_ = random_id("chatcmpl-");
  std::int64_t created_ = unix_seconds();
  std::int64_t prompt_tokens_ = 0, reused_tokens_ = 0, passes_ = 0;
  std::int64_t tokens_ = 0, image_tokens_ = 0;
  Json visual_ = nullptr;
  std::size_t done_ = 0;
  bool begun_ = false, over_ = false;
};

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
    api::ChatTurn turn;
    const Json* content = nullptr;
    for (const auto& [key, value] : message.items()) {
      if (key == "role" && value.is_string()) {
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
    if (turn.role != "system" && turn.role != "user" && turn.role != "assistant") {
      refuse_field(field + ".role", "system, user or assistant",
                   "'" + escape_for_terminal(turn.role, 32) + "'");
    }
    const bool silent = content == nullptr || content->is_null();
    const bool readable = silent ? turn.role == "assistant" : content->is_string() || content->is_array();
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
        take_part(service, (*content)[part],
                  field + ".content[" + std::to_string(part) + "]", turn, order);
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
      [](const Json& value) { return value.is_object() && value.value("type", "") == "text"; },
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
    throw api::Error(found->refusals.at(answers ? api::Task::kAnswer : api::Task::kDescribe));
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
}

// {"ID": NUMBER}: a bias on sequences of one id.
void take_logit_bias(const Json* given, api::Settings& settings) {
  constexpr const char* kField = "logit_bias";
  constexpr double kMaxBias = 100;
  if (given == nullptr || given->empty()) return;
  if (!given->is_object()) refuse_field(kField, "an object of token ids", given->type_name());
  std::string biases;
  for (const auto& [id, bias] : given->items()) {
    const bool number = id == "0" || (!id.empty() && id[0] != '0' && id.size() < 11 &&
                                      id.find_first_not_of("0123456789") == std::string::npos);
    if (!number) refuse_field(kField, "ids of tokens", "'" + escape_for_terminal(id, 32) + "'");
    if (!bias.is_number() || !(std::abs(bias.get<double>()) <= kMaxBias)) {
      refuse_field(kField, "numbers from -100 to 100",
                   bias.is_number() ? bias.dump() : bias.type_name());
    }
    biases += (biases.empty() ? "" : ",") + id + ":" + bias.dump();
  }
  constexpr const char* kSetting = "sequence-bias";
  const auto own = std::find_if(settings.begin(), settings.end(),
                                [&](const auto& one) { return one.name == kSetting; });
  if (own == settings.end()) return settings.push_back({kSetting, biases});
  own->value = own->value.text() + "," + biases;
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
    for (const auto& one : *settings) {
      if (one.name == kName) most = one.value.text();
    }
  }
  const std::int64_t bound = std::atoll(most.c_str());
  if (bound < 1 || order.max_tokens <= bound) return;
  order.max_tokens = bound;
  order.notes.push_back("max_tokens is at most " + most + " here");
}

ChatOrder read_chat(const Service& service, Body& body) {
  ChatOrder order;
  take_messages(service, body, order);
  choose_model(service, body, order);
  take_limits(body, order);
  refuse_others(body);
  if (order.task == api::Task::kAnswer) check_answer(order);
  const auto temperature = body.number("temperature", 0, 100);
  const Json* const logit_bias = body.any("logit_bias");
  body.skip("top_k", -1);  // off, as some say it
  Body::Settings settings = body.settings(order.task);
  order.settings = std::move(settings.request);
  order.open = std::move(settings.open);
  if (temperature) order.settings.push_back({"temp", *temperature});
  take_logit_bias(logit_bias, order.settings);
  if (order.task != api::Task::kAnswer) {
    bound_length(service, order);
  } else if (order.max_tokens > 0) {
    order.open.push_back({"max-tokens", order.max_tokens});
  }
  for (const std::string& note : body.notes()) order.notes.push_back(note);
  return order;
}

}  // namespace

void complete_chat(Service& service, Call& call) {
  Body body(call.request);
  if (const auto user = body.text("user")) call.client += " user " + *user;
  std::make_shared<ChatCall>(service.desk(), read_chat(service, body), call.reply)
      ->start(call.client);
}

}  // namespace tessera
