// The answer of a server as its bytes come in, without a socket: grammar and bounds of its head and
// its body. RFC 9112.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "apps/http/message_taker.h"

namespace tessera {

class AnswerReader {
 public:
  static constexpr std::size_t kHeadBytes = std::size_t{16} << 10;

  // More is refused.
  explicit AnswerReader(std::uint64_t body_bytes, std::size_t head_bytes = kHeadBytes);
  ~AnswerReader();
  AnswerReader(const AnswerReader&) = delete;

  using State = MessageState;
  // Takes what it can of `bytes` and returns how many those were; the rest is to come again with
  // more. It stops after the head.
  std::size_t take(std::string_view bytes);
  // No more bytes come. An answer without a length ends so; any other is refused.
  void end();
  State state() const { return taker_.state(); }

  int status() const;            // of the head: 200
  std::string type() const;      // "text/event-stream", in lower case, without parameters
  std::string take_body();       // what came of it since the last call
  const std::string& refusal() const { return refusal_; }  // kRefused: what was found

 private:
  struct Parser;

  MessageTaker taker_;
  std::unique_ptr<Parser> parser_;
  std::string refusal_;
};

}  // namespace tessera
