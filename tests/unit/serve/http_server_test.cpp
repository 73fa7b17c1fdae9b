// The HTTP server against strangers.
#include "apps/serve/http/server.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <thread>

#include "engine/core/error.h"
#include "tests/support/raw_client.h"

namespace tessera::http_server_test {
namespace {

using namespace std::chrono_literals;
using testing::RawClient;
using testing::status_of;

constexpr const char* kGet = "GET /echo HTTP/1.1\r\nHost: a\r\n\r\n";

// Waits for what other threads bring about.
template <typename Condition>
bool soon(const Condition& condition) {
  for (int i = 0; i < 500; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(10ms);
  }
  return condition();
}

std::string post(std::string_view body, std::string_view more = "") {
  return "POST /echo HTTP/1.1\r\nHost: a\r\n" + std::string(more) +
         "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + std::string(body);
}

class Http : public ::testing::Test {
 protected:
  void start(HttpLimits limits = {}) {
    server_ = std::make_unique<HttpServer>(
        "127.0.0.1", 0, limits,
        [](const HttpRequest& head) -> std::optional<HttpAnswer> {
          if (head.path != "/refused") return std::nullopt;
          return HttpAnswer{.status = 403, .body = "no"};
        },
        [this](HttpRequest&& request, std::shared_ptr<HttpReply> reply) {
          handle(std::move(request), std::move(reply));
        });
  }
  void handle(HttpRequest&& request, std::shared_ptr<HttpReply> reply) {
    if (request.path == "/throw") throw std::runtime_error("secret");
    if (request.path == "/drop") return;
    if (request.path == "/keep") {
      const std::lock_guard lock(mutex_);
      reply->on_gone([this] { ++gone_; });
      kept_.push_back(std::move(reply));
      return;
    }
    if (request.path == "/events") {
      reply->begin_events();
      for (int i = 0; i < 3; ++i) reply->event(i == 1 ? "named" : "", std::to_string(i));
      return reply->end();
    }
    if (request.path == "/flood") {
      reply->begin_events();
      const std::string much(1 << 16, 'x');
      while (!reply->gone()) reply->event("", much);
      ++gone_;
      return;
    }
    reply->send({.type = "text/plain",
                 .body = request.method + " " + request.path + "?" + request.query + " " +
                         std::to_string(request.body.size())});
  }
  std::string ask(std::string_view bytes, double seconds = 5) {
    RawClient client(server_->port());
    client.send(bytes);
    return client.read("\x01", seconds);
  }
  std::size_t kept() {
    const std::lock_guard lock(mutex_);
    return kept_.size();
  }
  void TearDown() override {
    server_.reset();
    kept_.clear();
  }

  std::mutex mutex_;
  std::vector<std::shared_ptr<HttpReply>> kept_;
  std::atomic<int> gone_ = 0;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(Http, RequestsAreAnsweredOnOneConnection) {
  start();
  RawClient client(server_->port());
  for (int i = 0; i < 3; ++i) {
    client.send(post("abc", i == 1 ? "X-Other: 1\r\n" : ""));
    const std::string answer = client.read("POST /echo? 3");
    EXPECT_EQ(status_of(answer), 200) << answer;
    EXPECT_NE(answer.find("Content-Length: 13\r\n"), std::string::npos) << answer;
  }
  client.send("GET /echo?a=b HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
  EXPECT_NE(client.read().find("GET /echo?a=b 0"), std::string::npos);
  EXPECT_TRUE(client.closed());
  EXPECT_TRUE(soon([&] { return server_->connections() == 0; }));
}

TEST_F(Http, RequestsInOnePieceAreAnsweredInOrder) {
  start();
  RawClient client(server_->port());
  client.send(post("1") + post("22") + std::string(kGet) + post("333"));
  const std::string answers = client.read("POST /echo? 3");
  EXPECT_LT(answers.find("POST /echo? 1"), answers.find("POST /echo? 2"));
  EXPECT_LT(answers.find("POST /echo? 2"), answers.find("GET /echo? 0"));
  EXPECT_LT(answers.find("GET /echo? 0"), answers.find("POST /echo? 3"));
}

TEST_F(Http, ChunkedBodiesAreRead) {
  start();
  const std::string head = "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
  RawClient client(server_->port());
  client.send(head + "3\r\nabc\r\n");
  std::this_thread::sleep_for(20ms);
  client.send("2\r\nde\r\n0\r\n\r\n");
  EXPECT_NE(client.read("echo? 5").find("POST /echo? 5"), std::string::npos);
}

TEST_F(Http, EventsAreChunksAndEndInOldHttp) {
  start();
  RawClient client(server_->port());
  client.send("GET /events HTTP/1.1\r\nHost: a\r\n\r\n");
  const std::string answer = client.read("0\r\n\r\n");
  EXPECT_NE(answer.find("Content-Type: text/event-stream"), std::string::npos) << answer;
  EXPECT_NE(answer.find("9\r\ndata: 0\n\n\r\n"), std::string::npos) << answer;
  EXPECT_NE(answer.find("event: named\ndata: 1\n\n"), std::string::npos) << answer;
  client.send(kGet);
  EXPECT_EQ(status_of(client.read("GET /echo? 0")), 200) << "the connection goes on";
  const std::string old = ask("GET /events HTTP/1.0\r\n\r\n");
  EXPECT_NE(old.find("\r\n\r\ndata: 0\n\nevent: named\ndata: 1\n\ndata: 2\n\n"), std::string::npos)
      << old;
}

TEST_F(Http, HeadHasNoBody) {
  start();
  RawClient client(server_->port());
  client.send("HEAD /echo HTTP/1.1\r\nHost: a\r\n\r\n");
  client.send(kGet);
  const std::string answers = client.read("GET /echo? 0");
  EXPECT_EQ(answers.find("HEAD /echo? 0"), std::string::npos) << answers;
}

TEST_F(Http, NonsenseIsRefusedWithItsStatus) {
  HttpLimits limits;
  limits.header_bytes = 4096;
  limits.body_bytes = 1000;
  start(limits);
  const std::string long_field(8192, 'x');
  std::string many = "GET /echo HTTP/1.1\r\n";
  for (int i = 0; i < 1000; ++i) many += "X-" + std::to_string(i) + ": 1\r\n";
  const struct {
    std::string bytes;
    int status;
  } kRows[] = {
      {"nonsense\r\n\r\n", 400},
      {"GET /echo HTTP/9.9\r\n\r\n", 400},
      {"GET  HTTP/1.1\r\n\r\n", 400},
      {std::string("GET /\0 HTTP/1.1\r\n\r\n", 20), 400},
      {"GET /echo HTTP/1.1\r\nHost : a\r\n\r\n", 400},
      {"GET /echo HTTP/1.1\r\nHost: a\r\n continued\r\n\r\n", 200},
      {"GET /" + long_field + " HTTP/1.1\r\n\r\n", 431},
      {"GET /echo HTTP/1.1\r\nX: " + long_field + "\r\n\r\n", 431},
      {many + "\r\n", 431},
      {"GET /refused HTTP/1.1\r\nHost: a\r\n\r\n", 403},
      {post(std::string(1001, 'x')), 413},
      {"POST /echo HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n", 400},
      {"POST /echo HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400},
      {"POST /echo HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400},
      {"POST /echo HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
      {"POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nab\r\n0\r\n\r\n", 400},
      {"POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n", 400},
      {"POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n7d0\r\n" + std::string(2000, 'x') +
           "\r\n0\r\n\r\n",
       413},
      {"GET /throw HTTP/1.1\r\nHost: a\r\n\r\n", 500},
      {"GET /drop HTTP/1.1\r\nHost: a\r\n\r\n", 500},
  };
  for (const auto& row : kRows) {
    RawClient client(server_->port());
    client.send(row.bytes);
    const std::string answer = client.read("\r\n\r\n");
    EXPECT_EQ(status_of(answer), row.status) << row.bytes.substr(0, 80) << "\n" << answer;
    EXPECT_EQ(answer.find("secret"), std::string::npos);
  }
  EXPECT_EQ(status_of(ask(kGet, 0.1)), 200) << "it goes on";
}

TEST_F(Http, ARefusedBodyIsNotWaitedFor) {
  HttpLimits limits;
  limits.body_bytes = 1000;
  start(limits);
  RawClient client(server_->port());
  client.send("POST /echo HTTP/1.1\r\nContent-Length: 1000000000\r\n\r\n");
  // More than sockets hold: the server has to read on, or the answer would be lost.
  std::thread sender([&] {
    const std::string much(1 << 16, 'x');
    for (int i = 0; i < 200 && client.send(much); ++i) {
    }
  });
  EXPECT_EQ(status_of(client.read("\r\n\r\n")), 413);
  sender.join();
}

TEST_F(Http, ExpectContinueIsAnswered) {
  start();
  RawClient client(server_->port());
  client.send("POST /echo HTTP/1.1\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(client.read("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.send("abc");
  EXPECT_NE(client.read("echo? 3").find("POST /echo? 3"), std::string::npos);
}

TEST_F(Http, SlowClientsAreGivenUp) {
  HttpLimits limits;
  limits.idle_seconds = 0.2;
  limits.header_seconds = 0.2;
  limits.body_seconds = 0.2;
  start(limits);
  RawClient idle(server_->port()), header(server_->port()), body(server_->port());
  header.send("GET /echo HT");
  body.send("POST /echo HTTP/1.1\r\nContent-Length: 100\r\n\r\nab");
  // A byte now and then does not help.
  std::thread drip([&] {
    for (int i = 0; i < 20 && header.send("T"); ++i) std::this_thread::sleep_for(50ms);
  });
  EXPECT_EQ(idle.read(), "");
  EXPECT_TRUE(idle.closed());
  EXPECT_EQ(status_of(header.read("\r\n\r\n")), 408);
  EXPECT_EQ(status_of(body.read("\r\n\r\n")), 408);
  drip.join();
  header.leave();
  body.leave();
  EXPECT_TRUE(soon([&] { return server_->connections() == 0; }));
}

TEST_F(Http, AReaderThatDoesNotReadIsGivenUp) {
  HttpLimits limits;
  limits.unsent_bytes = 1 << 20;
  start(limits);
  RawClient client(server_->port());
  client.send("GET /flood HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_TRUE(soon([&] { return gone_ == 1; }));
}

TEST_F(Http, ClientsThatGoAreNoticedWhileTheirRequestIsWorkedOn) {
  start();
  for (int i = 0; i < 20; ++i) {
    RawClient client(server_->port());
    client.send("GET /keep HTTP/1.1\r\nHost: a\r\n\r\n");
    ASSERT_TRUE(soon([&] { return kept() == static_cast<std::size_t>(i) + 1; }));
    client.leave();
    EXPECT_TRUE(soon([&] { return gone_ == i + 1; }));
  }
  // Answers of those that are gone are dropped; whoever asks later hears at once.
  for (const auto& reply : kept_) {
    EXPECT_TRUE(reply->gone());
    reply->send({.body = "late"});
    reply->on_gone([&] { ++gone_; });
  }
  EXPECT_EQ(gone_, 40);
  EXPECT_TRUE(soon([&] { return server_->connections() == 0; }));
}

TEST_F(Http, AClientThatEndsItsHalfReadsWhatWasAnswered) {
  start();
  RawClient client(server_->port());
  client.send("GET /keep HTTP/1.1\r\nHost: a\r\n\r\n");
  ASSERT_TRUE(soon([&] { return kept() == 1; }));
  const std::string much(8 << 20, 'x');  // more than sockets hold
  kept_[0]->send({.body = much});
  client.half_close();
  EXPECT_GT(client.read().size(), much.size());
  EXPECT_EQ(gone_, 0);
}

TEST_F(Http, ClientsThatGoAnywhereLeaveNothing) {
  start();
  const auto files = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  };
  const auto before = files();
  const std::string whole = post(std::string(500, 'x'));
  for (std::size_t at = 0; at <= whole.size(); at += 7) {
    RawClient client(server_->port());
    client.send(std::string_view(whole).substr(0, at));
  }
  EXPECT_TRUE(soon([&] { return server_->connections() == 0; }));
  EXPECT_EQ(files(), before);
}

TEST_F(Http, ConnectionsAndBodiesAreBounded) {
  HttpLimits limits;
  limits.connections = 4;
  limits.bodies_bytes = 3000;
  limits.body_bytes = 2000;
  start(limits);
  {
    std::vector<std::unique_ptr<RawClient>> clients;
    for (int i = 0; i < 4; ++i) {
      clients.push_back(std::make_unique<RawClient>(server_->port()));
      clients.back()->send("POST /echo HTTP/1.1\r\nContent-Length: 1500\r\n\r\n");
    }
    ASSERT_TRUE(soon([&] { return server_->connections() == 4; }));
    RawClient fifth(server_->port());
    EXPECT_EQ(status_of(fifth.read()), 503);
    clients[0]->send(std::string(1400, 'x'));
    clients[1]->send(std::string(1400, 'x'));
    std::this_thread::sleep_for(50ms);
    clients[2]->send(std::string(1400, 'x'));
    EXPECT_EQ(status_of(clients[2]->read("\r\n\r\n")), 503);
    clients[0]->send(std::string(100, 'x'));
    EXPECT_EQ(status_of(clients[0]->read("\r\n\r\n")), 200);
  }
  EXPECT_TRUE(soon([&] { return server_->connections() == 0; }));
  EXPECT_EQ(status_of(ask(post(std::string(1500, 'x')), 0.1)), 200) << "room is given back";
}

TEST_F(Http, DrainingEndsIdleConnectionsAndFinishesTheOthers) {
  start();
  RawClient idle(server_->port()), busy(server_->port());
  idle.send(kGet);
  idle.read("GET /echo? 0");
  busy.send("GET /keep HTTP/1.1\r\nHost: a\r\n\r\n");
  ASSERT_TRUE(soon([&] { return kept() == 1; }));
  server_->drain();
  idle.read();
  EXPECT_TRUE(idle.closed());
  EXPECT_TRUE(soon([&] { return !RawClient(server_->port()).open(); }));
  kept_[0]->send({.body = "at last"});
  const std::string answer = busy.read();
  EXPECT_NE(answer.find("at last"), std::string::npos) << answer;
  EXPECT_TRUE(busy.closed());
  EXPECT_TRUE(soon([&] { return server_->connections() == 0; }));
}

TEST_F(Http, ItEndsWithConnectionsOfEveryKind) {
  start();
  const std::uint16_t port = server_->port();
  RawClient idle(port), header(port), body(port), busy(port), flood(port);
  header.send("GET /ec");
  body.send("POST /echo HTTP/1.1\r\nContent-Length: 100\r\n\r\nab");
  busy.send("GET /keep HTTP/1.1\r\nHost: a\r\n\r\n");
  flood.send("GET /flood HTTP/1.1\r\nHost: a\r\n\r\n");
  ASSERT_TRUE(soon([&] { return kept() == 1 && server_->connections() == 5; }));
  server_.reset();
  EXPECT_EQ(gone_, 2);
  kept_[0]->send({.body = "nobody"});
}

TEST_F(Http, APortThatIsTakenIsRefused) {
  start();
  try {
    HttpServer("127.0.0.1", server_->port(), {}, nullptr, nullptr);
    FAIL() << "listened twice";
  } catch (const Error& error) {
    EXPECT_EQ(error.info().code, "E_SERVE_ADDRESS");
    EXPECT_EQ(error.exit_code(), 2);
  }
}

}  // namespace
}  // namespace tessera::http_server_test
