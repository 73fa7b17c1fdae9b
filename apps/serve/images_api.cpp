// POST /v1/images/generations, with the fields and the events of OpenAI's images and the settings
// of `tessera settings` beside them.
#include <algorithm>
#include <atomic>
#include <nlohmann/json.hpp>

#include "apps/serve/orders.h"
#include "apps/serve/service.h"
#include "engine/core/index.h"

namespace tessera {

namespace {

constexpr std::int64_t kMaxImages = 10, kMaxPartials = 3;

struct ImageOrder {
  api::ImageRequest request;
  api::Settings open;
  std::string model;
  std::int64_t images = 1;
  bool stream = false, data_urls = false;
  std::vector<std::string> notes;
};

// One request while its images are written. The desk's thread calls it.
class ImageCall : public std::enable_shared_from_this<ImageCall> {
 public:
  ImageCall(Desk& desk, ImageOrder order, std::shared_ptr<HttpReply> reply)
      : orders_(desk), order_(std::move(order)), reply_(std::move(reply)) {
    images_.resize(to_size(order_.images));
  }

  void start(const Asker& asker) {
    const std::weak_ptr<ImageCall> weak = weak_from_this();
    std::vector<Order> orders;
    for (std::size_t at = 0; at < images_.size(); ++at) {
      orders.push_back({.asker = asker,
                        .model = order_.model,
                        .task = api::Task::kImage,
                        .open = order_.open,
                        .request = request_of(at),
                        .listener = std::make_shared<Listener>(shared_from_this(), at)});
    }
    orders_.add(std::move(orders));
    reply_->on_gone([weak] {
      if (const auto self = weak.lock()) self->orders_.cancel();
    });
  }

 private:
  class Listener final : public OrderListener {
   public:
    Listener(std::shared_ptr<ImageCall> call, std::size_t at) : call_(std::move(call)), at_(at) {}
    void on_partial(std::int64_t number, api::Image&& image) override {
      call_->partial(at_, number, image);
    }
    void on_image(api::GeneratedImage&& made) override { call_->done(at_, made); }
    void on_error(const api::Error& error) override { call_->failed(error); }

   private:
    std::shared_ptr<ImageCall> call_;
    std::size_t at_;
  };

  api::ImageRequest request_of(std::size_t at) const {
    api::ImageRequest out = order_.request;
    out.seed = (out.seed + at) & narrow<std::uint64_t>(kMaxClientSeed);
    return out;
  }
  void begin() {
    if (begun_) return;
    begun_ = true;
    reply_->begin_events();
  }
  Json event_of(std::string_view type, std::size_t at, const std::string& png,
                const std::string& size) const {
    return {{"type", type},
            {"b64_json", to_base64(png)},
            {"created_at", created_},
            {"size", size},
            {"quality", "auto"},
            {"background", "opaque"},
            {"output_format", "png"},
            {"index", at},
            {"seed", request_of(at).seed}};
  }
  static std::string size_of(const api::Image& image) {
    return std::to_string(image.width) + "x" + std::to_string(image.height);
  }
  // Models read prompts of text alone.
  Json usage_of(std::int64_t tokens) const {
    return {{"input_tokens", prompt_tokens_},
            {"input_tokens_details", {{"text_tokens", prompt_tokens_}, {"image_tokens", 0}}},
            {"output_tokens", tokens},
            {"total_tokens", prompt_tokens_ + tokens}};
  }

  void partial(std::size_t at, std::int64_t number, const api::Image& image) {
    if (over_) return;
    begin();
    Json event = event_of("image_generation.partial_image", at, image.png(), size_of(image));
    event["partial_image_index"] = number;
    reply_->event("image_generation.partial_image", event.dump());
  }

  void done(std::size_t at, const api::GeneratedImage& made) {
    if (over_) return;
    const std::string png = made.png();
    tokens_ += made.tokens;
    prompt_tokens_ = made.prompt_tokens;  // the same of all
    size_ = size_of(made.image);
    if (order_.stream) {
      begin();
      Json event = event_of("image_generation.completed", at, png, size_);
      event["usage"] = usage_of(made.tokens);
      event["seconds"] = made.seconds;
      event["record"] = Json::parse(made.record);
      if (!order_.notes.empty()) event["notes"] = order_.notes;
      reply_->event("image_generation.completed", event.dump());
    } else {
      const std::string base64 = to_base64(png);
      Json& out = images_[at];
      if (order_.data_urls) {
        out["url"] = "data:image/png;base64," + base64;
      } else {
        out["b64_json"] = base64;
      }
      out["seed"] = request_of(at).seed;
      out["seconds"] = made.seconds;
      out["record"] = Json::parse(made.record);
    }
    if (++done_ < images_.size()) return;
    over_ = true;
    if (order_.stream) return reply_->end();
    Json body = {{"created", created_},
                 {"data", images_},
                 {"usage", usage_of(tokens_)},
                 {"output_format", "png"},
                 {"size", size_},
                 {"model", order_.model}};
    if (!order_.notes.empty()) body["notes"] = order_.notes;
    reply_->send(json_answer(body));
  }

  void failed(const api::Error& error) {
    if (over_) return;
    over_ = true;
    orders_.cancel();
    if (!begun_) return reply_->send(error_answer(error));
    reply_->event("error", error_object(error).dump());
    reply_->end();
  }

  Orders orders_;
  ImageOrder order_;
  std::shared_ptr<HttpReply> reply_;
  std::vector<Json> images_;
  std::int64_t created_ = unix_seconds(), tokens_ = 0, prompt_tokens_ = 0;
  std::string size_;
  std::size_t done_ = 0;
  bool begun_ = false, over_ = false;
};

// "256x256"; none = the model's own size.
void take_size(Body& body, const ServedModel& model, ImageOrder& order) {
  const std::string size = body.text("size").value_or("auto");
  const api::ModelInfo& own = model.tasks.at(api::Task::kImage);
  if (size == "auto" || size == std::to_string(own.width) + "x" + std::to_string(own.height)) return;
  const std::size_t cross = size.find('x');
  const auto digits = [](std::string_view text) {
    const bool in_range = text.size() < 5 || (text.size() == 5 && text <= "16384");
    return !text.empty() && text[0] != '0' && in_range &&
           std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
  };
  const std::string width = size.substr(0, cross);
  const std::string height = cross == std::string::npos ? "" : size.substr(cross + 1);
  if (!digits(width) || !digits(height)) {
    refuse_field("size", "auto, or WIDTHxHEIGHT in pixels", "'" + escape_for_terminal(size, 32) + "'");
  }
  order.open.push_back({"width", width});
  order.open.push_back({"height", height});
}

void take_format(Body& body, ImageOrder& order) {
  const std::string answer = body.text("response_format").value_or("b64_json");
  if (answer != "b64_json" && answer != "url") {
    refuse_field("response_format", "b64_json or url", "another");
  }
  order.data_urls = answer == "url";
  const std::string format = body.text("output_format").value_or("png");
  if (format != "png") refuse_field("output_format", "png", "another");
  const std::string background = body.text("background").value_or("auto");
  if (background != "auto" && background != "opaque") {
    refuse_field("background", "auto or opaque", "another");
  }
  body.without_effect("output_compression", {});
  body.without_effect("quality", {"auto"});
  body.without_effect("style", {});
  body.without_effect("moderation", {"auto"});
}

ImageOrder read_images(const Service& service, Body& body) {
  ImageOrder order;
  const ServedModel& model = service.model_for(body, api::Task::kImage);
  order.model = model.name;
  const auto prompt = body.text("prompt");
  if (!prompt) refuse_field("prompt", "a text", "none");
  order.request.prompt = *prompt;
  order.request.negative_prompt = body.text("negative_prompt");
  order.images = body.integer("n", 1, kMaxImages).value_or(1);
  order.stream = body.flag("stream").value_or(false);
  const auto partials = body.integer("partial_images", 0, kMaxPartials);
  if (partials && *partials > 0 && !order.stream) {
    refuse_field("partial_images", "\"stream\": true with it", "a request without");
  }
  order.request.partial_images = partials.value_or(0);
  body.skip("seed", -1);  // random
  const auto seed = body.integer("seed", 0, kMaxClientSeed);
  order.request.seed = seed ? narrow<std::uint64_t>(*seed) : random_client_seed();
  take_size(body, model, order);
  take_format(body, order);
  Body::Settings settings = body.settings(api::Task::kImage, {"width", "height"});
  order.request.settings = std::move(settings.request);
  order.open.insert(order.open.end(), settings.open.begin(), settings.open.end());
  order.notes = body.notes();
  return order;
}

}  // namespace

void generate_images(Service& service, Call& call) {
  Body body(call.request);
  if (const auto user = body.text("user")) call.asker.user = *user;
  std::make_shared<ImageCall>(service.desk(), read_images(service, body), call.reply)
      ->start(call.asker);
}

void edit_images(Service&, Call&) {
  throw api::Error({.kind = api::ErrorKind::kUsage,
                    .code = "E_EDITS",
                    .where = "/v1/images/edits",
                    .expected = "a model that changes images",
                    .found = "models that write them from texts",
                    .hint = "POST /v1/images/generations"});
}

}  // namespace tessera
