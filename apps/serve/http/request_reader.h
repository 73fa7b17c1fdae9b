// One request as its bytes come in: grammar and bounds of its head and its body, without a socket.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "apps/http/message_taker.h"
#include "apps/serve/http/message.h"

namespace tessera {

class RequestReader {
 public:
  RequestReader(std::size_t header_bytes, std::size_t body_bytes);
  ~RequestReader();
  RequestReader(const RequestReader&) = delete;

  using State = MessageState;
  // Takes what it can of `bytes` and returns how many those were; the rest is to come again with
  // more. It stops after the head, for its reader to look at it.
  std::size_t take(std::string_view bytes);
  State state() const { return taker_.state(); }

  const HttpAnswer& refusal() const { return refusal_; }  // kRefused; the connection is of no more use
  HttpRequest head() const;                               // kBody and kWhole; without its body
  std::size_t body_size() const;
  std::string take_body();  // kWhole
  bool keeps_alive() const;
  bool is_http11() const;

 private:
  struct Parser;
  bool known_coding() const;

  MessageTaker taker_;
  std::unique_ptr<Parser> parser_;
  HttpAnswer refusal_;
};

// What HTTP itself refuses, in the form of OpenAI's errors. Neither text has a character that JSON
// escapes.
HttpAnswer http_refusal(int status, std::string_view code, std::string_view message);

}  // namespace tessera
