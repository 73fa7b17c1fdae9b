// A request as it came over HTTP and the answer that it gets. RFC 9110, 9112; events as the HTML
// standard has them (text/event-stream).
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera {

using HttpFields = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;         // "GET"
  std::string path, query;    // as sent, without '?'; no escapes are resolved
  HttpFields fields;          // names in lower case, in their order
  std::string body;
  std::string peer;           // address of the client, without a port

  // The first field of that name, in lower case; empty = none.
  std::string_view field(std::string_view name) const;
};

struct HttpAnswer {
  int status = 200;
  std::string type = "application/json";
  std::string body = {};
  HttpFields fields = {};  // besides length, type and connection
};

// Where the answer of one request goes. Every call may come from any thread. A reply that goes
// without an answer is answered by 500.
class HttpReply {
 public:
  virtual ~HttpReply() = default;
  // The whole answer; nothing after it.
  virtual void send(HttpAnswer answer) = 0;
  // 200 and a stream of events, to be ended by end().
  virtual void begin_events(HttpFields fields = {}) = 0;
  // `data` has no line break; an empty name gives an event without one.
  virtual void event(std::string_view name, std::string_view data) = 0;
  virtual void end() = 0;
  // Called once, on a thread of the server, when the client goes before its answer is ended, or at
  // once where it has gone. It must not block.
  virtual void on_gone(std::function<void()> call) = 0;
  virtual bool gone() const = 0;
};

}  // namespace tessera
