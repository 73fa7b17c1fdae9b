#include "apps/serve/http/request_reader.h"

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

HttpAnswer http_refusal(int status, std::string_view code, std::string_view message) {
  HttpAnswer out{.status = status};
  out.body.append(R"({"error":{"message":")").append(message);
  out.body += R"(","type":")";
  out.body += status < 500 ? "invalid_request_error" : "server_error";
  out.body.append(R"(","param":null,"code":")").append(code).append(R"("}})");
  if (status == 503) out.fields.emplace_back("Retry-After", "1");
  return out;
}

RequestReader::RequestReader(std::size_t header_bytes, std::size_t body_bytes)
    : taker_(header_bytes), parser_(std::make_unique<Parser>()) {
  parser_->header_limit(narrow<std::uint32_t>(header_bytes));
  parser_->body_limit(body_bytes);
}
RequestReader::~RequestReader() = default;

std::size_t RequestReader::take(std::string_view bytes) {
  const auto refuse = [&](int status, std::string_view code, std::string_view message) {
    refusal_ = http_refusal(status, code, message);
    return false;
  };
  const auto on_fault = [&](MessageFault fault) {
    switch (fault) {
      case MessageFault::kHead: refuse(431, "E_HTTP_HEADER", "the header is too long"); break;
      case MessageFault::kBody: refuse(413, "E_HTTP_BODY", "the body is too long"); break;
      case MessageFault::kLine: refuse(431, "E_HTTP_LINE", "a line within the body is too long"); break;
      case MessageFault::kGrammar: refuse(400, "E_HTTP_GRAMMAR", "no request of HTTP/1.1"); break;
    }
  };
  return taker_.take<true>(*parser_, bytes, on_fault, [&] {
    if (parser_->get().count(http::field::host) > 1) {
      return refuse(400, "E_HTTP_HOST", "more than one Host");
    }
    if (!known_coding()) {
      return refuse(501, "E_HTTP_CODING", "of transfer codings only chunked is known");
    }
    return true;
  });
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
