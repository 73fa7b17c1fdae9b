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
    : taker_(head_bytes), parser_(std::make_unique<Parser>()) {
  parser_->header_limit(narrow<std::uint32_t>(head_bytes));
  parser_->body_limit(body_bytes);
}
AnswerReader::~AnswerReader() = default;

std::size_t AnswerReader::take(std::string_view bytes) {
  const auto on_fault = [&](MessageFault fault) {
    switch (fault) {
      case MessageFault::kHead: refusal_ = "a head that is too long"; break;
      case MessageFault::kBody: refusal_ = "a body that is too long"; break;
      case MessageFault::kLine: refusal_ = "a line that is too long"; break;
      case MessageFault::kGrammar: refusal_ = "another text"; break;
    }
  };
  return taker_.take<false>(*parser_, bytes, on_fault, [&] {
    if (status() >= 200) return true;
    refusal_ = "status " + std::to_string(status());
    return false;
  });
}

void AnswerReader::end() {
  if (!taker_.goes_on()) return;
  boost::system::error_code error;
  const bool by_end = state() == State::kBody && parser_->need_eof();
  if (by_end) parser_->put_eof(error);
  if (!by_end || error) {
    taker_.refuse();
    refusal_ = taker_.head_size() == 0 ? "no answer" : "the end in its middle";
  } else {
    taker_.finish();
  }
}

int AnswerReader::status() const { return narrow<int>(parser_->get().result_int()); }

std::string AnswerReader::type() const {
  const std::string all = ascii_lower_case(parser_->get()[http::field::content_type]);
  return all.substr(0, all.find_first_of("; \t"));
}

std::string AnswerReader::take_body() { return std::exchange(parser_->get().body(), {}); }

}  // namespace tessera
