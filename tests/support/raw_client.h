// A client of bytes: what it sends is what a test says, right or wrong.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera::testing {

class RawClient {
 public:
  explicit RawClient(std::uint16_t port) : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in place = {};
    place.sin_family = AF_INET;
    place.sin_port = htons(port);
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    open_ = connect(socket_, reinterpret_cast<sockaddr*>(&place), sizeof place) == 0;
  }
  ~RawClient() { leave(); }
  RawClient(const RawClient&) = delete;

  bool open() const { return open_; }
  bool send(std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t count = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (count <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(count));
    }
    return true;
  }
  void half_close() const { shutdown(socket_, SHUT_WR); }
  void leave() {
    if (socket_ >= 0) close(socket_);
    socket_ = -1;
  }
  // Until the server closes, `until` was read, or so many seconds passed.
  std::string read(std::string_view until = "\x01\x02", double seconds = 5) {
    std::string out;
    char buffer[4096];
    while (out.find(until) == std::string::npos) {
      pollfd wait = {socket_, POLLIN, 0};
      if (poll(&wait, 1, static_cast<int>(seconds * 1000)) <= 0) break;
      const ssize_t count = recv(socket_, buffer, sizeof buffer, 0);
      closed_ = count <= 0;
      if (closed_) break;
      out.append(buffer, static_cast<std::size_t>(count));
    }
    return out;
  }
  // read() saw the server's end.
  bool closed() const { return closed_; }

 private:
  int socket_;
  bool open_ = false, closed_ = false;
};

// "HTTP/1.1 200 OK" -> 200; 0 = no answer.
inline int status_of(const std::string& answer) {
  return answer.starts_with("HTTP/1.1 ") ? std::stoi(answer.substr(9, 3)) : 0;
}

}  // namespace tessera::testing
