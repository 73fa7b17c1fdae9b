// A server that a test writes: each connection is a call with the request that came.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "engine/core/error.h"

namespace tessera {

class FakeConnection {
 public:
  FakeConnection(int fd, const std::atomic<bool>& over) : fd_(fd), over_(over) {}
  // False: the client has gone.
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
  }
  // An answer with its length.
  bool answer(int status, const std::string& type, const std::string& body) {
    return send("HTTP/1.1 " + std::to_string(status) + " X\r\nContent-Type: " + type +
                "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
  }
  // Of a stream of events, in chunks.
  bool begin_events() {
    return send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n");
  }
  bool chunk(std::string_view data) {
    char head[32];
    std::snprintf(head, sizeof head, "%zx\r\n", data.size());
    return send(head + std::string(data) + "\r\n");
  }
  bool end_events() { return send("0\r\n\r\n"); }
  // Waits until the client or the test ends. True: the client.
  bool wait_for_end() {
    while (!over_) {
      pollfd one = {.fd = fd_, .events = POLLIN, .revents = 0};
      char byte = 0;
      if (::poll(&one, 1, 20) == 1 && ::recv(fd_, &byte, 1, 0) <= 0) return true;
    }
    return false;
  }
  bool over() const { return over_; }
  int fd() const { return fd_; }

 private:
  int fd_;
  const std::atomic<bool>& over_;
};

class FakeServer {
 public:
  using Call = std::function<void(FakeConnection& to, const std::string& request)>;

  explicit FakeServer(Call call) : call_(std::move(call)) {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in place = {};
    place.sin_family = AF_INET;
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof place;
    expects(::bind(listener_, reinterpret_cast<sockaddr*>(&place), size) == 0, "a port");
    expects(::listen(listener_, 64) == 0, "a listener");
    ::getsockname(listener_, reinterpret_cast<sockaddr*>(&place), &size);
    port_ = ntohs(place.sin_port);
    accepting_ = std::thread([this] { accept(); });
  }
  ~FakeServer() {
    over_ = true;
    accepting_.join();
    for (std::thread& one : at_work_) one.join();
    ::close(listener_);
  }
  FakeServer(const FakeServer&) = delete;

  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
  // Whole requests so far.
  std::vector<std::string> requests() const {
    const std::lock_guard lock(mutex_);
    return requests_;
  }

 private:
  void accept() {
    while (!over_) {
      pollfd one = {.fd = listener_, .events = POLLIN, .revents = 0};
      if (::poll(&one, 1, 20) != 1) continue;
      const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (fd >= 0) at_work_.emplace_back([this, fd] { serve(fd); });
    }
  }
  void serve(int fd) {
    std::string request;
    std::size_t whole = 0;  // its bytes, once the head says so
    while (!over_ && (whole == 0 || request.size() < whole)) {
      pollfd one = {.fd = fd, .events = POLLIN, .revents = 0};
      if (::poll(&one, 1, 20) != 1) continue;
      char part[1 << 16];
      const ssize_t got = ::recv(fd, part, sizeof part, 0);
      if (got <= 0) break;
      request.append(part, static_cast<std::size_t>(got));
      const std::size_t end = request.find("\r\n\r\n");
      if (whole > 0 || end == std::string::npos) continue;
      const std::size_t length = request.find("Content-Length: ");
      whole = end + 4 + (length < end ? std::stoul(request.substr(length + 16)) : 0);
    }
    if (whole > 0 && request.size() >= whole) {
      {
        const std::lock_guard lock(mutex_);
        requests_.push_back(request);
      }
      FakeConnection to(fd, over_);
      call_(to, request);
    }
    ::close(fd);
  }

  Call call_;
  int listener_ = -1;
  std::uint16_t port_ = 0;
  std::atomic<bool> over_ = false;
  mutable std::mutex mutex_;
  std::vector<std::string> requests_;
  std::vector<std::thread> at_work_;
  std::thread accepting_;
};

}  // namespace tessera
