#include "apps/serve/http/request_reader.h"

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include "engine/core/index.h"
#include "engine/core/utf8.h"

namespace tessera {

namespace http = boost::beast::http;

struct RequestReader::Parser : http::request_parser<http::string_body> {};

std::string_view HttpRequest::field(std::string_view name) const {
  for (const auto& [key, value] : fields) {
    if (key == name) return value;
  }
  return {};
}

HttpAnswer plain_refusal(int status, std::string text) {
  return {.status = status, .type = "text/plain; charset=utf-8", .body = std::move(text) + "\n"};
}

RequestReader::RequestReader(std::size_t header_bytes, std::size_t body_bytes)
    : header_bytes_(header_bytes), parser_(std::make_unique<Parser>()) {
  parser_->header_limit(narrow<std::uint32_t>(header_bytes));
  parser_->body_limit(body_bytes);
}
RequestReader::~RequestReader() = default;

std::size_t RequestReader::take(std::string_view bytes) {
  std::size_t taken = 0;
  while (taken < bytes.size() && (state_ == State::kHead || state_ == State::kBody)) {
    const std::string_view rest = bytes.substr(taken);
    // A body in chunks that is not over has "0\r\n\r\n" to come: Beast ends the program at less.
    if (state_ == State::kBody && parser_->chunked() && rest.size() < 5) break;
    boost::system::error_code error;
    const std::size_t used = parser_->put(boost::asio::buffer(rest.data(), rest.size()), error);
    taken += used;
    if (error == http::error::header_limit) return refuse(431, "the header is too long");
    if (error == http::error::body_limit) return refuse(413, "the body is too long");
    if (error && error != http::error::need_more) return refuse(400, "no request of HTTP/1.1");
    // The parser's own limit is for what it did not take yet, and lines come one by one.
    if (state_ == State::kHead && (head_bytes_ += used) > header_bytes_) {
      return refuse(431, "the header is too long");
    }
    if (state_ == State::kHead && parser_->is_header_done()) {
      if (parser_->get().count(http::field::host) > 1) return refuse(400, "more than one Host");
      if (!known_coding()) return refuse(501, "of transfer codings only chunked is known");
      parser_->eager(true);
      state_ = parser_->is_done() ? State::kWhole : State::kBody;
      return taken;
    }
    if (parser_->is_done()) state_ = State::kWhole;
    if (error || used == 0) break;
  }
  // Lines of chunks, and the fields after the last one: the parser waits for their ends.
  if (state_ == State::kBody && bytes.size() - taken > header_bytes_) {
    return refuse(431, "a line within the body is too long");
  }
  return taken;
}

std::size_t RequestReader::refuse(int status, std::string text) {
  state_ = State::kRefused;
  refusal_ = plain_refusal(status, std::move(text));
  return 0;
}

// Others may see the end of a body elsewhere where its coding is not this one, alone and of HTTP/1.1.
bool RequestReader::known_coding() const {
  for (const auto& field : parser_->get()) {
    if (field.name() != http::field::transfer_encoding) continue;
    if (ascii_lower_case(field.value()) != "chunked" || !parser_->chunked() || !is_http11()) return false;
  }
  return true;
}

HttpRequest RequestReader::head() const {
  const auto& message = parser_->get();
  HttpRequest out;
  out.method = std::string(message.method_string());
  const std::string target(message.target());
  const std::size_t mark = target.find('?');
  out.path = target.substr(0, mark);
  if (mark != std::string::npos) out.query = target.substr(mark + 1);
  for (const auto& field : message) {
    out.fields.emplace_back(ascii_lower_case(field.name_string()), std::string(field.value()));
  }
  return out;
}

std::size_t RequestReader::body_size() const { return parser_->get().body().size(); }
std::string RequestReader::take_body() { return std::move(parser_->get().body()); }
bool RequestReader::keeps_alive() const { return parser_->get().keep_alive(); }
bool RequestReader::is_http11() const { return parser_->get().version() >= 11; }

}  // namespace tessera
