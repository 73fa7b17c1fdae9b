// An HTTP/1.1 server for strangers: bounded headers, bodies, connections and unsent bytes, a
// deadline for each phase of a connection, and clients that go are noticed while their request is
// worked on. One thread moves bytes, a few others run handlers. docs/decisions/0033-server.md says
// why it stands on Boost.Beast.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "apps/serve/http/message.h"

namespace tessera {

struct HttpLimits {
  std::size_t header_bytes = std::size_t{16} << 10;   // 431 above
  std::size_t body_bytes = std::size_t{64} << 20;     // of one request; 413 above
  std::size_t bodies_bytes = std::size_t{512} << 20;  // of all at once; 503 above
  std::size_t unsent_bytes = std::size_t{64} << 20;   // that a slow reader may leave; then it goes
  std::size_t connections = 512;                      // 503 above
  std::size_t connections_each = 384;                 // of one address
  double idle_seconds = 60;                           // between two requests
  double header_seconds = 10;                         // from its first byte to its last
  // A body has so long and a second for each 32 KiB of it; 408 else.
  double body_seconds = 20;
  double write_seconds = 30;  // for each 256 KiB that are sent
  int handlers = 2;           // threads
};

class HttpServer {
 public:
  // Looks at a request before its body is read. An answer refuses it.
  using Gate = std::function<std::optional<HttpAnswer>(const HttpRequest& head)>;
  // What the server's own refusals of a request have, as far as its header was read.
  using Fields = std::function<HttpFields(const HttpRequest& head)>;
  // Called on a thread of handlers; may answer later. What it throws becomes 500.
  using Handler = std::function<void(HttpRequest&& request, std::shared_ptr<HttpReply> reply)>;

  // Listens at once; `port` 0 = any free one. Error kUsage (E_SERVE_ADDRESS).
  HttpServer(const std::string& address, std::uint16_t port, const HttpLimits& limits, Gate gate,
             Handler handler, Fields fields = {});
  // Closes every connection.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;

  std::uint16_t port() const;
  // No new connection; those without a request at work are closed, the others after their answer.
  void drain();
  std::size_t connections() const;

  struct State;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace tessera
