#include "apps/client/answer_reader.h"

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>

#include "engine/core/index.h"
#include "engine/core/utf8.h"

namespace tessera {

namespace http = boost::beast::http;

namespace {

// A body that is taken away in pieces: nothing is reserved for the length that a head names.
struct Pieces {
  using value_type = std::string;
  class reader {
   public:
    template <bool kRequest, class Fields>
    reader(http::header<kRequest, Fields>& /*head*/, value_type& body) : body_(body) {}
    void init(const boost::optional<std::uint64_t>& /*length*/, boost::system::error_code& error) {
      error = {};
    }
    template <class Buffers>
    std::size_t put(const Buffers& buffers, boost::system::error_code& error) {
      error = {};
      std::size_t size = 0;
      for (auto one = boost::asio::buffer_sequence_begin(buffers);
           one != boost::asio::buffer_sequence_end(buffers); ++one) {
        const boost::asio::const_buffer bytes(*one);
        body_.append(static_cast<const char*>(bytes.data()), bytes.size());
        size += bytes.size();
      }
      return size;
    }
    void finish(boost::system::error_code& error) { error = {}; }

   private:
    value_type& body_;
  };
};

}  // namespace

struct AnswerReader::Parser : http::response_parser<Pieces> {};

AnswerReader::AnswerReader(std::uint64_t body_bytes, std::size_t head_bytes)
    : parser_(std::make_unique<Parser>()), head_bytes_(head_bytes) {
  parser_->header_limit(narrow<std::uint32_t>(head_bytes));
  parser_->body_limit(body_bytes);
}
AnswerReader::~AnswerReader() = default;

std::size_t AnswerReader::take(std::string_view bytes) {
  std::size_t taken = 0;
  while (taken < bytes.size() && (state_ == State::kHead || state_ == State::kBody)) {
    const std::string_view rest = bytes.substr(taken);
    // A body in chunks that is not over has "0\r\n\r\n" to come: Beast ends the program at less.
    if (state_ == State::kBody && parser_->chunked() && rest.size() < 5) break;
    boost::system::error_code error;
    const std::size_t used = parser_->put(boost::asio::buffer(rest.data(), rest.size()), error);
    taken += used;
    if (error == http::error::header_limit) return refuse("a head that is too long");
    if (error == http::error::body_limit) return refuse("a body that is too long");
    if (error && error != http::error::need_more) return refuse("another text");
    // The parser's own limit is for what it did not take yet, and lines come one by one.
    if (state_ == State::kHead && (head_ += used) > head_bytes_) {
      return refuse("a head that is too long");
    }
    if (state_ == State::kHead && parser_->is_header_done()) {
      if (status() < 200) return refuse("status " + std::to_string(status()));
      parser_->eager(true);
      state_ = parser_->is_done() ? State::kWhole : State::kBody;
      return taken;
    }
    if (parser_->is_done()) state_ = State::kWhole;
    if (error || used == 0) break;
  }
  // Lines of chunks, and the fields after the last one: the parser waits for their ends.
  if (bytes.size() - taken > head_bytes_ && state_ != State::kWhole && state_ != State::kRefused) {
    return refuse("a line that is too long");
  }
  return taken;
}

void AnswerReader::end() {
  if (state_ != State::kHead && state_ != State::kBody) return;
  boost::system::error_code error;
  const bool by_end = state_ == State::kBody && parser_->need_eof();
  if (by_end) parser_->put_eof(error);
  if (!by_end || error) {
    refuse(head_ == 0 ? "no answer" : "the end in its middle");
  } else {
    state_ = State::kWhole;
  }
}

std::size_t AnswerReader::refuse(std::string found) {
  state_ = State::kRefused;
  refusal_ = std::move(found);
  return 0;
}

int AnswerReader::status() const { return narrow<int>(parser_->get().result_int()); }

std::string AnswerReader::type() const {
  const std::string all = ascii_lower_case(parser_->get()[http::field::content_type]);
  return all.substr(0, all.find_first_of("; \t"));
}

std::string AnswerReader::take_body() { return std::exchange(parser_->get().body(), {}); }

}  // namespace tessera
