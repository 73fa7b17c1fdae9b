// A server with a handler for each way to answer, and what became of its requests.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "apps/serve/http/server.h"
#include "tests/support/http_client.h"

namespace tessera {

inline std::size_t open_files() {
  const std::filesystem::directory_iterator all("/proc/self/fd"), end;
  return static_cast<std::size_t>(std::distance(all, end));
}

inline std::string get_request(const std::string& path, const std::string& fields = "") {
  return "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n" + fields + "\r\n";
}
inline std::string post_request(const std::string& path, const std::string& body,
                                const std::string& fields = "") {
  return "POST " + path + " HTTP/1.1\r\nHost: localhost\r\nContent-Length: " +
         std::to_string(body.size()) + "\r\n" + fields + "\r\n" + body;
}

struct HttpRun {
  explicit HttpRun(const HttpLimits& limits = {})
      : server(std::make_unique<HttpServer>(
            "127.0.0.1", 0, limits, [this](const HttpRequest& head) { return gate(head); },
            [this](HttpRequest&& request, std::shared_ptr<HttpReply> reply) {
              handle(std::move(request), std::move(reply));
            },
            [](const HttpRequest& head) { return HttpFields{{"X-Of", head.path}}; })) {}
  ~HttpRun() {
    server.reset();
    for (std::thread& one : threads) one.join();
  }

  RawClient client(int receive_bytes = 0) const { return RawClient(server->port(), receive_bytes); }
  // A new client's question, answered whole.
  HttpSeen ask(const std::string& request) const { return client().ask(request); }
  bool alive() const {
    const HttpSeen seen = ask(get_request("/echo"));
    return seen.status == 200 && seen.whole;
  }
  bool has_held(std::size_t count) {
    return comes([&] {
      const std::lock_guard lock(mutex);
      return held.size() == count;
    });
  }
  std::vector<std::shared_ptr<HttpReply>> take_held() {
    const std::lock_guard lock(mutex);
    return std::exchange(held, {});
  }

  std::mutex mutex;
  std::vector<std::shared_ptr<HttpReply>> held;  // of /hold and /stream, unanswered
  std::vector<std::thread> threads;
  std::atomic<int> asked = 0, gone = 0, gated = 0;
  std::string last_body;
  std::unique_ptr<HttpServer> server;

 private:
  std::optional<HttpAnswer> gate(const HttpRequest& head) {
    ++gated;
    EXPECT_TRUE(head.body.empty());
    if (head.path != "/refused") return std::nullopt;
    return HttpAnswer{.status = 403, .type = "text/plain", .body = "no"};
  }
  void handle(HttpRequest&& request, std::shared_ptr<HttpReply> reply) {
    ++asked;
    const std::string path = request.path;
    if (path == "/echo") {
      reply->send({.type = "text/plain",
                   .body = request.method + " " + request.query + " " + request.body});
    } else if (path == "/size") {
      reply->send({.type = "text/plain", .body = std::to_string(request.body.size())});
    } else if (path == "/large") {
      reply->send({.type = "text/plain", .body = std::string(std::stoul(request.query), 'x')});
    } else if (path == "/throw") {
      throw std::runtime_error("secret");
    } else if (path == "/throw-number") {
      throw 7;
    } else if (path == "/begin-throw") {
      reply->begin_events();
      reply->event("one", "1");
      throw std::runtime_error("secret");
    } else if (path == "/send-throw") {
      reply->send({.type = "text/plain", .body = "first"});
      throw std::runtime_error("secret");
    } else if (path == "/drop") {
      return;
    } else if (path == "/begin-drop") {
      reply->begin_events();
      reply->event("one", "1");
    } else if (path == "/events") {
      reply->begin_events({{"X-Own", "yes"}});
      reply->event("one", "{\"a\":1}");
      reply->event("", "2");
      reply->end();
    } else if (path == "/thread") {
      const std::lock_guard lock(mutex);
      threads.emplace_back([reply] { reply->send({.type = "text/plain", .body = "elsewhere"}); });
    } else if (path == "/hold" || path == "/stream") {
      reply->on_gone([this] { ++gone; });
      if (path == "/stream") reply->begin_events();
      const std::lock_guard lock(mutex);
      last_body = request.body;
      held.push_back(reply);
    } else {
      reply->send({.status = 404, .type = "text/plain", .body = path});
    }
  }
};

}  // namespace tessera
