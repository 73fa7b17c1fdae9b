#include "apps/studio/server_link.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/core/index.h"
#include "engine/core/io.h"

namespace tessera {

namespace {

constexpr std::size_t kMaxKeyFile = 4096;

// The first line, without spaces around it.
std::string read_key(const std::filesystem::path& file) {
  if (file.empty()) return "";
  const std::string text = read_file(file, kMaxKeyFile, ErrorKind::kUsage);
  std::string key = text.substr(0, text.find_first_of("\r\n"));
  const bool plain = std::all_of(key.begin(), key.end(), [](char c) { return c > ' ' && c < 0x7f; });
  if (key.empty() || !plain) {
    throw Error({.kind = ErrorKind::kUsage,
                 .code = "E_CONNECT_KEY",
                 .file = file.string(),
                 .where = "line 1",
                 .expected = "a key: characters of ASCII without spaces",
                 .found = key.empty() ? "none" : "another line",
                 .hint = "the second word of its line in the server's --keys"});
  }
  return key;
}

ImageReaderOptions server_reader_options(const std::filesystem::path& helper) {
  ImageReaderOptions out;
  out.helper = helper;
  out.limits.file_bytes = kServerEventBytes;
  out.limits.pixels = kServerPixels;
  return out;
}

}  // namespace

ServerLink::ServerLink(const ServerOptions& options, const std::filesystem::path& helper)
    : address_(parse_server_address(options.url, "--connect")),
      key_(read_key(options.key_file)),
      limits_(options.limits),
      reader_(server_reader_options(helper)) {}

std::string ServerLink::get(const std::string& path, double seconds,
                            const Cancelled& cancelled) const {
  ClientLimits limits = limits_;
  limits.body_bytes = kServerTextBytes;
  limits.silent_seconds = limits.connect_seconds = std::min(seconds, limits_.silent_seconds);
  int status = 0;
  std::string body;
  const ClientCalls calls{.cancelled = cancelled,
                          .on_head = [&](const AnswerHead& head) { status = head.status; },
                          .on_body = [&](std::string_view more) { body += more; }};
  if (!ask_server(address_, key_, {.path = path}, limits, calls)) return "";
  if (status != 200) throw Error(read_refusal(status, body, url()));
  return body;
}

bool ServerLink::stream(const std::string& path, const Json& body, const Cancelled& cancelled,
                        const std::function<void(const ServerEvent&)>& on_event) const {
  AnswerHead head;
  std::string refusal;
  EventReader events(kServerEventBytes);
  const auto on_body = [&](std::string_view more) {
    if (head.status != 200) {
      if (refusal.size() + more.size() <= kServerTextBytes) refusal += more;
      return;
    }
    std::vector<ServerEvent> ended;
    if (!events.feed(more, ended)) {
      refuse_server(address_, "E_SERVER_ANSWER",
                    "events of at most " + std::to_string(kServerEventBytes >> 20) + " MiB",
                    "a longer one");
    }
    for (const ServerEvent& event : ended) on_event(event);
  };
  const ClientCalls calls{.cancelled = cancelled,
                          .on_head =
                              [&](const AnswerHead& given) {
                                head = given;
                                if (head.status != 200 || head.type == "text/event-stream") return;
                                refuse_server(address_, "E_SERVER_ANSWER", "text/event-stream",
                                              head.type.empty() ? "no type" : head.type);
                              },
                          .on_body = on_body};
  const ClientRequest request{.method = "POST", .path = path, .body = body.dump()};
  if (!ask_server(address_, key_, request, limits_, calls)) return false;
  if (head.status != 200) throw Error(read_refusal(head.status, refusal, url()));
  return true;
}

Image ServerLink::decode(const std::string& png) {
  const std::lock_guard lock(decoding_);
  const auto* const bytes = reinterpret_cast<const std::uint8_t*>(png.data());
  return on_background(reader_.decode({bytes, png.size()}, url()), Rgb{255, 255, 255});
}

}  // namespace tessera
