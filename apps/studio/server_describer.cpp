#include "apps/studio/server_describer.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "apps/runtime/base64.h"
#include "engine/core/io.h"

namespace tessera {

namespace {

constexpr std::size_t kMaxFile = std::size_t{256} << 20;

Json chat_request(const CaptionSetup& setup, const DescribeRequest& request) {
  const std::string bytes =
      read_file(request.images.front().file, kMaxFile, ErrorKind::kGeneral);
  const Json image = {{"type", "image_url"},
                      {"image_url",
                       {{"url", "data:application/octet-stream;base64," + to_base64(bytes)}}}};
  const Json text = {{"type", "text"}, {"text", request.prompt}};
  Json out = {{"messages", {{{"role", "user"}, {"content", {image, text}}}}},
              {"stream", true},
              {"stream_options", {{"include_usage", true}}}};
  if (!setup.model.empty()) out["model"] = setup.model;
  if (!setup.prune_method.empty()) {
    out["prune"] = setup.prune_method;
    out["prune_rate"] = setup.prune_rate;
  }
  return out;
}

std::vector<VisualTile> tiles_of(const std::vector<ServedView>& views) {
  std::vector<VisualTile> out;
  for (const ServedView& view : views) {
    out.push_back({view.rows, view.columns, view.left, view.top, view.width, view.height,
                   std::vector<float>(view.kept.size(), std::numeric_limits<float>::quiet_NaN()),
                   view.kept});
  }
  return out;
}

// The server, and not this image, is the trouble.
bool is_of_server(const ErrorInfo& error) {
  return error.code == "E_KEY" ||
         (error.code.starts_with("E_SERVER_") && error.code != "E_SERVER_REFUSED");
}

}  // namespace

void ServerDescriber::describe(const CaptionSetup& setup, const DescribeSource& next,
                               TextListener& listener, const std::function<bool()>& ends) {
  while (const std::optional<DescribeRequest> request = next()) {
    if (!describe_one(setup, *request, listener, ends)) return;
  }
}

bool ServerDescriber::describe_one(const CaptionSetup& setup, const DescribeRequest& request,
                                   TextListener& listener, const std::function<bool()>& ends) {
  Caption caption;
  caption.id = request.id;
  const double began = monotonic_seconds();
  bool over = false, whole = false;
  try {
    const Json body = chat_request(setup, request);
    const auto on_event = [&](const ServerEvent& event) {
      const ChatNews news = read_chat_event(event, server_.url());
      over = over || news.over;
      if (caption.text.size() + news.text.size() > kMaxText) {
        refuse_answer(server_.url(), "a text of at most " + std::to_string(kMaxText) + " bytes",
                      "a longer one");
      }
      caption.text += news.text;
      if (!news.text.empty()) listener.on_text(request.id, news.text);
      caption.cut_short = caption.cut_short || news.cut_short;
      if (!news.has_facts) return;
      caption.tokens = news.tokens;
      caption.passes = news.passes;
      caption.prompt_tokens = news.prompt_tokens;
      caption.visual_tokens = news.visual_tokens;
      caption.kept_tokens = news.kept_tokens;
      listener.on_tiles(request.id, tiles_of(news.views));
    };
    whole = server_.stream("/v1/chat/completions", body, ends, on_event);
    if (whole && !over) refuse_answer(server_.url(), "a whole text", "the end of its events");
  } catch (const Error& error) {
    if (is_of_server(error.info())) throw;
    caption.failed = whole = true;
    caption.error = error.info();
  }
  caption.seconds.total = monotonic_seconds() - began;
  if (whole) listener.on_caption(std::move(caption));
  return whole;
}

}  // namespace tessera
