#include "apps/client/client.h"

#include <array>
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <chrono>
#include <memory>

#include "apps/client/answer_reader.h"
#include "engine/core/error.h"
#include "engine/core/io.h"

namespace tessera {

namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

constexpr auto kLook = std::chrono::milliseconds(20);  // between looks at `cancelled`

std::string request_text(const ServerAddress& server, const std::string& key,
                         const ClientRequest& request) {
  std::string out = request.method + " " + request.path + " HTTP/1.1\r\nHost: " + server.authority() +
                    "\r\nConnection: close\r\n";
  if (!key.empty()) out += "Authorization: Bearer " + key + "\r\n";
  if (!request.body.empty()) {
    out += "Content-Type: application/json\r\nContent-Length: " +
           std::to_string(request.body.size()) + "\r\n";
  }
  return out + "\r\n" + request.body;
}

// One connection. Reading and writing go on side by side: a server may refuse a long request before
// it has all of it.
class Exchange {
 public:
  Exchange(const ServerAddress& server, const ClientLimits& limits, const ClientCalls& calls)
      : server_(server), limits_(limits), calls_(calls), reader_(limits.body_bytes) {}

  bool run(std::string request) {
    request_ = std::move(request);
    const double from = monotonic_seconds();
    resolver_.async_resolve(server_.host, server_.port,
                            [this](error_code error, const tcp::resolver::results_type& found) {
                              if (error) return fail(error);
                              connect(found);
                            });
    if (!until([&] { return connected_; }, [&] { return from + limits_.connect_seconds; }, "a connection")) {
      return false;
    }
    last_ = monotonic_seconds();
    write_more();
    read_more();
    const double end = last_ + limits_.whole_seconds;
    return until([&] { return reader_.state() == AnswerReader::State::kWhole; },
                 [&] { return std::min(end, last_ + limits_.silent_seconds); }, "an answer in time");
  }

 private:
  // False: cancelled.
  template <typename So, typename Deadline>
  bool until(const So& so, const Deadline& deadline, const char* expected) {
    while (true) {
      take_received();
      if (so()) return true;
      if (!failure_.empty()) refuse_server(server_, "E_SERVER_GONE", "a server", failure_);
      if (calls_.cancelled && calls_.cancelled()) return false;
      if (monotonic_seconds() > deadline()) {
        refuse_server(server_, "E_SERVER_SLOW", expected, "none");
      }
      io_.restart();
      io_.run_one_for(kLook);
    }
  }
  // Not within a handler: what the calls throw is the caller's.
  void take_received() {
    std::size_t used = 1;
    while (used > 0 && reader_.state() != AnswerReader::State::kWhole) {
      used = reader_.take(received_);
      received_.erase(0, used);
      if (reader_.state() == AnswerReader::State::kHead) continue;
      if (reader_.state() != AnswerReader::State::kRefused) tell();
    }
    if (ended_ && failure_.empty() && reader_.state() != AnswerReader::State::kRefused) {
      reader_.end();
      if (reader_.state() == AnswerReader::State::kRefused) failure_ = reader_.refusal();
    }
    if (reader_.state() == AnswerReader::State::kRefused && failure_.empty()) {
      refuse_server(server_, "E_SERVER_ANSWER", "an answer of HTTP/1.1", reader_.refusal());
    }
  }
  void tell() {
    if (!head_seen_ && calls_.on_head) calls_.on_head({reader_.status(), reader_.type()});
    head_seen_ = true;
    const std::string body = reader_.take_body();
    if (!body.empty() && calls_.on_body) calls_.on_body(body);
  }
  void connect(const tcp::resolver::results_type& found) {
    asio::async_connect(socket_, found, [this](error_code error, const tcp::endpoint&) {
      if (error) return fail(error);
      connected_ = true;
      error_code ignored;
      socket_.set_option(asio::socket_base::keep_alive(true), ignored);
    });
  }
  void fail(const error_code& error) { failure_ = error.message(); }
  void write_more() {
    if (sent_ == request_.size()) return;
    socket_.async_write_some(asio::buffer(request_.data() + sent_, request_.size() - sent_),
                             [this](error_code error, std::size_t count) {
                               if (error) return;  // reading says what became of it
                               sent_ += count;
                               last_ = monotonic_seconds();
                               write_more();
                             });
  }
  void read_more() {
    socket_.async_read_some(asio::buffer(piece_), [this](error_code error, std::size_t count) {
      if (error) {
        ended_ = true;
        if (error != asio::error::eof) fail(error);
        return;
      }
      received_.append(piece_.data(), count);
      last_ = monotonic_seconds();
      read_more();
    });
  }

  const ServerAddress& server_;
  const ClientLimits& limits_;
  const ClientCalls& calls_;
  AnswerReader reader_;
  std::string request_, received_, failure_;
  std::size_t sent_ = 0;
  std::array<char, std::size_t{64} << 10> piece_;
  bool connected_ = false, ended_ = false, head_seen_ = false;
  double last_ = 0;  // a byte went or came
  asio::io_context io_;
  tcp::resolver resolver_{io_};
  tcp::socket socket_{io_};
};

}  // namespace

bool ask_server(const ServerAddress& server, const std::string& key, const ClientRequest& request,
                const ClientLimits& limits, const ClientCalls& calls) {
  const auto exchange = std::make_unique<Exchange>(server, limits, calls);
  return exchange->run(request_text(server, key, request));
}

void refuse_server(const ServerAddress& server, const char* code, std::string expected,
                   std::string found) {
  throw Error({.kind = ErrorKind::kGeneral,
               .code = code,
               .where = server.url(),
               .expected = std::move(expected),
               .found = escape_for_terminal(found, 256)});
}

}  // namespace tessera
