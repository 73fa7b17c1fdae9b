#include "apps/serve/http/server.h"

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/status.hpp>
#include <charconv>
#include <chrono>
#include <deque>
#include <mutex>
#include <thread>

#include "apps/serve/http/open_connections.h"
#include "apps/serve/http/request_reader.h"
#include "engine/core/error.h"
#include "engine/core/index.h"
#include "engine/core/utf8.h"

namespace tessera {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;
using asio::ip::tcp;

namespace {

constexpr std::size_t kReadBytes = std::size_t{64} << 10;
constexpr std::size_t kPieceBytes = std::size_t{256} << 10;  // that one write sends at most
constexpr std::size_t kAheadBytes = std::size_t{64} << 10;   // of further requests, while one is at work
constexpr double kBodyBytesPerSecond = 32.0 * 1024;
constexpr double kLingerSeconds = 2;  // in which a client may read the last answer

std::string_view reason_of(int status) {
  const auto text = http::obsolete_reason(http::int_to_status(narrow<unsigned>(status)));
  return {text.data(), text.size()};
}

std::string head_of(int status, std::string_view type, const HttpFields& fields, bool close) {
  std::string out = "HTTP/1.1 " + std::to_string(status) + " ";
  out += reason_of(status);
  out += "\r\nContent-Type: ";
  out += type;
  out += "\r\nX-Content-Type-Options: nosniff\r\n";
  for (const auto& [name, value] : fields) out += name + ": " + value + "\r\n";
  if (close) out += "Connection: close\r\n";
  return out;
}

std::string whole_answer(const HttpAnswer& answer, bool close, bool head_only) {
  std::string out = head_of(answer.status, answer.type, answer.fields, close);
  out += "Content-Length: " + std::to_string(answer.body.size()) + "\r\n\r\n";
  if (!head_only) out += answer.body;
  return out;
}

}  // namespace

class Connection;

struct HttpServer::State : std::enable_shared_from_this<State> {
  State(const HttpLimits& bounds, Gate first, Handler then, Fields more)
      : limits(bounds),
        gate(std::move(first)),
        handler(std::move(then)),
        fields(std::move(more)),
        acceptor(io),
        pause(io),
        handlers(to_size(bounds.handlers)) {}

  void listen(const std::string& address, std::uint16_t port);
  void accept();

  HttpLimits limits;
  Gate gate;
  Handler handler;
  Fields fields;  // may be empty
  asio::io_context io{1};
  // It goes on without connections, until the server ends.
  asio::executor_work_guard<asio::io_context::executor_type> goes_on{io.get_executor()};
  tcp::acceptor acceptor;
  asio::steady_timer pause;
  asio::thread_pool handlers;
  std::thread thread;
  std::uint16_t port = 0;
  std::atomic<std::size_t> connections = 0;
  // Of the thread of `io` alone.
  OpenConnections<Connection> open;
  std::size_t bodies = 0;  // bytes of bodies that are being read
  bool draining = false;
};

// One request that is worked on: what other threads know of a connection.
class Exchange {
 public:
  Exchange(std::shared_ptr<HttpServer::State> state, std::weak_ptr<Connection> connection,
           bool close, bool head_only, bool chunks)
      : state_(std::move(state)),
        connection_(std::move(connection)),
        close_(close),
        head_only_(head_only),
        chunks_(chunks) {}
  void send(const HttpAnswer& answer) {
    put(whole_answer(answer, close_, head_only_), true, Phase::kFresh);
  }
  void begin_events(HttpFields fields) {
    fields.emplace_back("Cache-Control", "no-store");
    fields.emplace_back("X-Accel-Buffering", "no");  // proxies pass events on as they come
    if (chunks_) fields.emplace_back("Transfer-Encoding", "chunked");
    std::string head = head_of(200, "text/event-stream", fields, close_ || !chunks_) + "\r\n";
    put(std::move(head), false, Phase::kFresh);
  }
  void event(std::string_view name, std::string_view data) {
    std::string text;
    if (!name.empty()) text.append("event: ").append(name).append("\n");
    text.append("data: ").append(data).append("\n\n");
    if (chunks_) {
      char size[32];
      const auto end = std::to_chars(size, size + sizeof size, text.size(), 16).ptr;
      text = std::string(size, end) + "\r\n" + text + "\r\n";
    }
    put(std::move(text), false, Phase::kEvents);
  }
  void end() { put(chunks_ ? "0\r\n\r\n" : "", true, Phase::kEvents); }
  void on_gone(std::function<void()> call) {
    {
      const std::lock_guard lock(mutex_);
      if (!gone_) {
        if (!ended_) call_ = std::move(call);
        return;
      }
    }
    call();
  }
  bool gone() const {
    const std::lock_guard lock(mutex_);
    return gone_;
  }
  // Nobody answers it any more. What has begun is cut, so that no client takes it for the whole.
  void abandon();

  // --- called by the connection, on its thread ---

  // What is to be sent, at most a piece. Empty with `over`: all of it was.
  std::string take(bool& over) {
    const std::lock_guard lock(mutex_);
    posted_ = false;
    std::string out = std::move(unsent_.empty() ? last_ : unsent_.front());
    if (unsent_.empty()) last_.clear();
    if (!unsent_.empty()) unsent_.pop_front();
    bytes_ -= out.size();
    over = ended_ && unsent_.empty() && last_.empty();
    return out;
  }
  bool ended() const {
    const std::lock_guard lock(mutex_);
    return ended_;
  }
  bool overflowed() const {
    const std::lock_guard lock(mutex_);
    return overflowed_;
  }
  bool cut() const {
    const std::lock_guard lock(mutex_);
    return cut_;
  }
  bool closes() const { return close_ || (!chunks_ && events_); }
  void leave() {
    std::function<void()> call;
    {
      const std::lock_guard lock(mutex_);
      if (gone_) return;
      gone_ = true;
      unsent_.clear();
      last_.clear();
      bytes_ = 0;
      if (!ended_) call = std::move(call_);
      call_ = nullptr;
    }
    if (call) call();
  }

 private:
  enum class Phase { kFresh, kEvents };
  void put(std::string bytes, bool ends, Phase phase);
  void add(std::string_view bytes, bool ends);
  void wake();

  std::shared_ptr<HttpServer::State> state_;
  std::weak_ptr<Connection> connection_;
  bool close_, head_only_, chunks_;
  mutable std::mutex mutex_;
  std::deque<std::string> unsent_;  // whole pieces
  std::string last_;                // that still grows
  std::size_t bytes_ = 0;
  bool begun_ = false, events_ = false, ended_ = false, posted_ = false, gone_ = false;
  bool overflowed_ = false, cut_ = false;  // its reader left too much; its handler left it
  std::function<void()> call_;
};

// What a handler has of an exchange.
class HandlersReply final : public HttpReply {
 public:
  explicit HandlersReply(std::shared_ptr<Exchange> exchange) : exchange_(std::move(exchange)) {}
  ~HandlersReply() override { exchange_->abandon(); }
  HandlersReply(const HandlersReply&) = delete;
  void send(HttpAnswer answer) override { exchange_->send(answer); }
  void begin_events(HttpFields fields) override { exchange_->begin_events(std::move(fields)); }
  void event(std::string_view name, std::string_view data) override {
    exchange_->event(name, data);
  }
  void end() override { exchange_->end(); }
  void on_gone(std::function<void()> call) override { exchange_->on_gone(std::move(call)); }
  bool gone() const override { return exchange_->gone(); }
  void abandon() { exchange_->abandon(); }

 private:
  std::shared_ptr<Exchange> exchange_;
};

class Connection final : public std::enable_shared_from_this<Connection> {
 public:
  Connection(std::shared_ptr<HttpServer::State> state, tcp::socket socket, std::string peer)
      : state_(std::move(state)),
        socket_(std::move(socket)),
        timer_(socket_.get_executor()),
        peer_(std::move(peer)) {
    error_code ignored;
    socket_.set_option(tcp::no_delay(true), ignored);
  }

  void start() {
    begin_request();
    read();
  }
  // Bytes of the request at work wait to be sent.
  void pump() {
    if (!at_work_) return;
    if (at_work_->overflowed()) return close();
    if (writing_) return;
    bool over = false;
    out_ = at_work_->take(over);
    if (out_.empty()) {
      if (over && at_work_->cut()) return close();
      if (over) finish();
      return;
    }
    writing_ = true;
    limit(state_->limits.write_seconds);
    asio::async_write(socket_, asio::buffer(out_),
                      [self = shared_from_this()](error_code error, std::size_t) {
                        self->writing_ = false;
                        if (error) return self->close();
                        self->no_limit();
                        self->pump();
                      });
  }
  void drain() {
    if (!at_work_ && !writing_ && phase_ != Phase::kLinger) close();
  }
  void close() {
    if (closed_) return;
    closed_ = true;
    timer_.cancel();
    error_code ignored;
    socket_.close(ignored);
    count_body(0);
    state_->open.remove(peer_, shared_from_this());
    state_->connections = state_->open.size();
    if (const auto left = std::exchange(at_work_, nullptr)) left->leave();
  }

 private:
  enum class Phase { kIdle, kHeader, kBody, kWork, kLinger };

  void begin_request() {
    reader_.emplace(state_->limits.header_bytes, state_->limits.body_bytes);
    phase_ = Phase::kIdle;
    limit(state_->limits.idle_seconds);
  }

  void read() {
    if (reading_ || closed_) return;
    reading_ = true;
    socket_.async_read_some(
        buffer_.prepare(kReadBytes),
        [self = shared_from_this()](error_code error, std::size_t count) {
          self->reading_ = false;
          if (self->closed_) return;
          // A client that ends its half reads what was answered already; else it has gone.
          const bool answered = self->at_work_ && self->at_work_->ended();
          if (error == asio::error::eof && answered) return;
          if (error) return self->close();
          if (self->phase_ == Phase::kLinger) return self->read();  // of no interest any more
          self->buffer_.commit(count);
          self->parse();
        });
  }

  void parse() {
    if (phase_ == Phase::kWork) {  // further requests wait, as far as they are small
      if (refused_) buffer_.clear();
      if (buffer_.size() > kAheadBytes) return close();
      return read();
    }
    if (phase_ == Phase::kIdle && buffer_.size() > 0) {
      phase_ = Phase::kHeader;
      limit(state_->limits.header_seconds);
    }
    for (std::size_t used = 1; used > 0 && buffer_.size() > 0;) {
      const auto bytes = buffer_.data();
      used = reader_->take({static_cast<const char*>(bytes.data()), bytes.size()});
      buffer_.consume(used);
      if (reader_->state() == RequestReader::State::kRefused) return refuse(reader_->refusal());
      const bool has_head = reader_->state() != RequestReader::State::kHead;
      if (phase_ == Phase::kHeader && has_head && !begin_body()) return;
    }
    if (phase_ == Phase::kBody) {
      if (!count_body(reader_->body_size())) {
        return refuse(http_refusal(503, "E_HTTP_BODIES", "too many bytes of other requests at once"));
      }
      if (is_whole()) return work();
      const double bytes = to_double(counted_);
      limit(state_->limits.body_seconds + bytes / kBodyBytesPerSecond, body_began_);
    }
    read();
  }

  bool is_whole() const { return reader_->state() == RequestReader::State::kWhole; }

  // False: it was refused.
  bool begin_body() {
    request_ = reader_->head();
    request_.peer = peer_;
    std::optional<HttpAnswer> refusal;
    try {
      refusal = state_->gate(request_);
    } catch (...) {
      refusal = http_refusal(500, "E_HTTP_FAILED", "the request failed");
    }
    if (refusal) {
      refuse(*refusal, /*by_gate=*/true);
      return false;
    }
    phase_ = Phase::kBody;
    body_began_ = Clock::now();
    if (!is_whole() && ascii_lower_case(request_.field("expect")) == "100-continue") {
      static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
      writing_ = true;
      asio::async_write(socket_, asio::buffer(kContinue),
                        [self = shared_from_this()](error_code error, std::size_t) {
                          self->writing_ = false;
                          if (error) return self->close();
                          self->pump();
                        });
    }
    return true;
  }

  void begin_work(bool close) {
    phase_ = Phase::kWork;
    no_limit();
    at_work_ = std::make_shared<Exchange>(state_, weak_from_this(), close || state_->draining,
                                          request_.method == "HEAD", reader_->is_http11());
  }

  void work() {
    request_.body = reader_->take_body();
    begin_work(!reader_->keeps_alive());
    asio::post(state_->handlers, [state = state_, request = std::move(request_),
                                  reply = std::make_shared<HandlersReply>(at_work_)]() mutable {
      try {
        state->handler(std::move(request), reply);
      } catch (...) {
        reply->abandon();
      }
    });
    request_ = {};
    read();
  }

  // The rest of the request is not read: the connection ends with it.
  void refuse(HttpAnswer answer, bool by_gate = false) {
    refused_ = true;
    if (!by_gate && state_->fields) {  // the gate's answers have them
      const HttpFields more = state_->fields(reader_->head());
      answer.fields.insert(answer.fields.end(), more.begin(), more.end());
    }
    begin_work(true);
    at_work_->send(answer);
    read();
  }

  void finish() {
    const bool closes = at_work_->closes() || state_->draining;
    at_work_.reset();
    count_body(0);
    if (closes) return linger();
    begin_request();
    if (buffer_.size() > 0) return parse();
    read();
  }

  // A socket that is closed with bytes unread would take the answer back from its reader.
  void linger() {
    phase_ = Phase::kLinger;
    error_code ignored;
    socket_.shutdown(tcp::socket::shutdown_send, ignored);
    buffer_.clear();
    limit(kLingerSeconds);
    read();
  }

  bool count_body(std::size_t bytes) {
    state_->bodies += bytes - counted_;
    counted_ = bytes;
    return state_->bodies <= state_->limits.bodies_bytes;
  }

  using Clock = std::chrono::steady_clock;
  void limit(double seconds, Clock::time_point from = Clock::now()) {
    timer_.expires_at(from + std::chrono::duration_cast<Clock::duration>(
                                 std::chrono::duration<double>(seconds)));
    timer_.async_wait([self = shared_from_this()](error_code error) {
      if (error || self->closed_ || self->timer_.expiry() > Clock::now()) return;
      self->on_late();
    });
  }
  void no_limit() { timer_.expires_at(Clock::time_point::max()); }
  void on_late() {
    if (phase_ == Phase::kHeader || phase_ == Phase::kBody) {
      return refuse(http_refusal(408, "E_HTTP_SLOW", "the request came too slowly"));
    }
    close();
  }

  std::shared_ptr<HttpServer::State> state_;
  tcp::socket socket_;
  asio::steady_timer timer_;
  boost::beast::flat_buffer buffer_;
  std::optional<RequestReader> reader_;
  HttpRequest request_;
  std::string peer_, out_;
  std::shared_ptr<Exchange> at_work_;
  Phase phase_ = Phase::kIdle;
  Clock::time_point body_began_ = {};
  std::size_t counted_ = 0;  // of the body, within State::bodies
  bool reading_ = false, writing_ = false, refused_ = false, closed_ = false;
};

void Exchange::put(std::string bytes, bool ends, Phase phase) {
  const std::lock_guard lock(mutex_);
  if (gone_ || ended_ || overflowed_) return;
  expects(begun_ == (phase == Phase::kEvents), "an answer begins once");
  add(bytes, ends);
}

void Exchange::abandon() {
  const std::lock_guard lock(mutex_);
  if (gone_ || ended_ || overflowed_) return;
  cut_ = begun_;
  const HttpAnswer answer = http_refusal(500, "E_HTTP_FAILED", "the request failed");
  add(cut_ ? "" : whole_answer(answer, close_, head_only_), true);
}

// With the lock.
void Exchange::add(std::string_view bytes, bool ends) {
  begun_ = true;
  events_ = events_ || !ends;
  ended_ = ends;
  bytes_ += bytes.size();
  if (ends) call_ = nullptr;
  if (!ends && bytes_ > state_->limits.unsent_bytes) {  // the whole of an answer is there anyway
    overflowed_ = true;
    unsent_.clear();
    last_.clear();
    return wake();
  }
  while (!bytes.empty()) {
    const std::size_t count = std::min(bytes.size(), kPieceBytes - last_.size());
    last_ += bytes.substr(0, count);
    bytes.remove_prefix(count);
    if (last_.size() == kPieceBytes) unsent_.push_back(std::exchange(last_, {}));
  }
  if (!std::exchange(posted_, true)) wake();
}

void Exchange::wake() {
  asio::post(state_->io, [connection = connection_] {
    if (const auto self = connection.lock()) self->pump();
  });
}

void HttpServer::State::listen(const std::string& address, std::uint16_t wanted) {
  error_code error;
  const auto ip = asio::ip::make_address(address == "localhost" ? "127.0.0.1" : address, error);
  const tcp::endpoint place(ip, wanted);
  if (!error) acceptor.open(place.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(place, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error) {
    throw Error({.kind = ErrorKind::kUsage,
                 .code = "E_SERVE_ADDRESS",
                 .where = address + ":" + std::to_string(wanted),
                 .expected = "an address of this machine and a port that is free",
                 .found = error.message()});
  }
  port = acceptor.local_endpoint().port();
}

void HttpServer::State::accept() {
  acceptor.async_accept([self = shared_from_this()](error_code error, tcp::socket socket) {
    if (error == asio::error::operation_aborted || self->draining) return;
    if (error) {  // no file is left, for instance
      self->pause.expires_after(std::chrono::milliseconds(100));
      self->pause.async_wait([self](error_code stopped) {
        if (!stopped) self->accept();
      });
      return;
    }
    error_code ignored;
    std::string peer = socket.remote_endpoint(ignored).address().to_string();
    if (!self->open.has_room(peer, self->limits.connections, self->limits.connections_each)) {
      static const std::string kFull =
          whole_answer(http_refusal(503, "E_HTTP_CONNECTIONS", "too many connections"), true, false);
      socket.non_blocking(true, ignored);
      socket.write_some(asio::buffer(kFull), ignored);
    } else {
      const auto connection = std::make_shared<Connection>(self, std::move(socket), peer);
      self->open.add(peer, connection);
      self->connections = self->open.size();
      connection->start();
    }
    self->accept();
  });
}

HttpServer::HttpServer(const std::string& address, std::uint16_t port, const HttpLimits& limits,
                       Gate gate, Handler handler, Fields fields)
    : state_(std::make_shared<State>(limits, std::move(gate), std::move(handler),
                                     std::move(fields))) {
  state_->listen(address, port);
  state_->accept();
  state_->thread = std::thread([state = state_.get()] {
    while (true) {
      try {
        state->io.run();
        return;
      } catch (...) {  // of one connection, for lack of memory; its deadline ends it
      }
    }
  });
}

HttpServer::~HttpServer() {
  asio::post(state_->io, [state = state_] {
    state->draining = true;
    error_code ignored;
    state->acceptor.close(ignored);
    state->pause.cancel();
    for (const auto& connection : state->open.all()) connection->close();
    state->goes_on.reset();
  });
  state_->thread.join();
  state_->handlers.join();
}

std::uint16_t HttpServer::port() const { return state_->port; }

void HttpServer::drain() {
  asio::post(state_->io, [state = state_] {
    state->draining = true;
    error_code ignored;
    state->acceptor.close(ignored);
    for (const auto& connection : state->open.all()) connection->drain();
  });
}

std::size_t HttpServer::connections() const { return state_->connections; }

}  // namespace tessera
