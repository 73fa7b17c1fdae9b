// One message of HTTP/1.1 as its bytes come in, a request or an answer: the bounds of its parts, and
// what a parser of Beast's is given of it. RFC 9112.
#pragma once

#include <boost/beast/http/basic_parser.hpp>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "engine/core/function_ref.h"

namespace tessera {

enum class MessageState : std::uint8_t { kHead, kBody, kWhole, kRefused };

// Why one was refused.
enum class MessageFault : std::uint8_t {
  kHead,     // too long
  kBody,     // too long
  kLine,     // too long, within the body: of a chunk, or a field after the last one
  kGrammar,  // no such message
};

class MessageTaker {
 public:
  // A longer head is refused, as is a line within the body.
  explicit MessageTaker(std::size_t head_bytes) : most_(head_bytes) {}

  // Gives the parser what it can of `bytes` and returns how many those were; the rest is to come
  // again with more. It stops after the head; `accepts` is asked then. `on_fault` is told why
  // it was refused, unless `accepts` did.
  template <bool kRequest>
  std::size_t take(boost::beast::http::basic_parser<kRequest>& parser, std::string_view bytes,
                   FunctionRef<void(MessageFault)> on_fault, FunctionRef<bool()> accepts);

  MessageState state() const { return state_; }
  bool goes_on() const { return state_ == MessageState::kHead || state_ == MessageState::kBody; }
  std::size_t head_size() const { return head_; }  // bytes of it so far
  void refuse() { state_ = MessageState::kRefused; }
  void finish() { state_ = MessageState::kWhole; }

 private:
  std::size_t most_, head_ = 0;
  MessageState state_ = MessageState::kHead;
};

}  // namespace tessera
