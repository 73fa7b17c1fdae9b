// POST /v1/chat/completions, with the fields and the chunks of OpenAI's chats and the settings of
// `tessera settings` beside them.
#include <nlohmann/json.hpp>

#include "apps/runtime/logprobs_json.h"
#include "apps/serve/chat_request.h"
#include "apps/serve/orders.h"
#include "apps/serve/service.h"
#include "engine/core/index.h"

namespace tessera {

namespace {

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

  void start(const Asker& asker) {
    std::vector<Order> orders;
    for (std::size_t at = 0; at < choices_.size(); ++at) {
      orders.push_back({.asker = asker,
                        .model = order_.model,
                        .task = order_.task,
                        .open = order_.open,
                        .request = order_.request(to_index(at)),
                        .listener = std::make_shared<Listener>(shared_from_this(), at),
                        .holds = order_.held});
    }
    order_.images.clear();
    order_.held = nullptr;
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
  void add_notes(Json& to) const {
    if (order_.seed) to["seed"] = *order_.seed;
    if (!order_.notes.empty()) to["notes"] = order_.notes;
  }
  void chunk(std::size_t at, Json delta, const Json& reason, Json logprobs = nullptr) {
    Json event = head("chat.completion.chunk");
    event["choices"] = Json::array({{{"index", at},
                                     {"delta", std::move(delta)},
                                     {"logprobs", std::move(logprobs)},
                                     {"finish_reason", reason}}});
    if (order_.usage) event["usage"] = nullptr;
    if (!order_.usage && !reason.is_null()) add_notes(event);
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
    add_notes(body);
  }

  void failed(const api::Error& given) {
    if (over_) return;
    const api::Error error = chat_error(order_, given);
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

}  // namespace

void complete_chat(Service& service, Call& call) {
  Body body(call.request);
  if (const auto user = body.text("user")) call.asker.user = *user;
  std::make_shared<ChatCall>(service.desk(), read_chat(service, body), call.reply)
      ->start(call.asker);
}

}  // namespace tessera
