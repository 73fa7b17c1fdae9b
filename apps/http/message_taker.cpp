#include "apps/http/message_taker.h"

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/error.hpp>

namespace tessera {

namespace http = boost::beast::http;

template <bool kRequest>
std::size_t MessageTaker::take(http::basic_parser<kRequest>& parser, std::string_view bytes,
                               FunctionRef<void(MessageFault)> on_fault,
                               FunctionRef<bool()> accepts) {
  const auto refuse_for = [&](MessageFault fault) -> std::size_t {
    refuse();
    on_fault(fault);
    return 0;
  };
  std::size_t taken = 0;
  while (taken < bytes.size() && goes_on()) {
    const std::string_view rest = bytes.substr(taken);
    // A body in chunks that is not over has "0\r\n\r\n" to come: Beast ends the program at less.
    if (state_ == MessageState::kBody && parser.chunked() && rest.size() < 5) break;
    boost::system::error_code error;
    const std::size_t used = parser.put(boost::asio::buffer(rest.data(), rest.size()), error);
    taken += used;
    if (error == http::error::header_limit) return refuse_for(MessageFault::kHead);
    if (error == http::error::body_limit) return refuse_for(MessageFault::kBody);
    if (error && error != http::error::need_more) return refuse_for(MessageFault::kGrammar);
    // The parser's own limit is for what it did not take yet, and lines come one by one.
    if (state_ == MessageState::kHead && (head_ += used) > most_) {
      return refuse_for(MessageFault::kHead);
    }
    if (state_ == MessageState::kHead && parser.is_header_done()) {
      if (!accepts()) {
        refuse();
        return 0;
      }
      parser.eager(true);
      state_ = parser.is_done() ? MessageState::kWhole : MessageState::kBody;
      return taken;
    }
    if (parser.is_done()) finish();
    if (error || used == 0) break;
  }
  // Lines of a head, of chunks, and the fields after the last one: the parser waits for their ends.
  if (goes_on() && bytes.size() - taken > most_) {
    return refuse_for(state_ == MessageState::kHead ? MessageFault::kHead : MessageFault::kLine);
  }
  return taken;
}

template std::size_t MessageTaker::take(http::basic_parser<true>&, std::string_view,
                                        FunctionRef<void(MessageFault)>, FunctionRef<bool()>);
template std::size_t MessageTaker::take(http::basic_parser<false>&, std::string_view,
                                        FunctionRef<void(MessageFault)>, FunctionRef<bool()>);

}  // namespace tessera
