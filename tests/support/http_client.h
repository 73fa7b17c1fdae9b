// A client of HTTP that sends bytes as they are given, and reads what comes back.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "engine/core/error.h"

namespace tessera {

struct HttpSeen {
  int status = 0;
  std::string head;                           // with its empty line
  std::map<std::string, std::string> fields;  // names in lower case
  std::string body;                           // chunks put together
  bool whole = false;                         // its end was seen
};

class RawClient {
 public:
  // `receive_bytes`: what the kernel may keep for this end; 0 = its default. `from`: the last part of
  // its address, 127.0.0.x.
  explicit RawClient(std::uint16_t port, int receive_bytes = 0, std::uint32_t from = 1) {
    fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    expects(fd_ >= 0, "a socket");
    if (receive_bytes > 0) {
      ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
    }
    sockaddr_in place = {};
    place.sin_family = AF_INET;
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK - 1 + from);
    ::bind(fd_, reinterpret_cast<const sockaddr*>(&place), sizeof place);
    place.sin_port = htons(port);
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(fd_, reinterpret_cast<const sockaddr*>(&place), sizeof place) == 0;
  }
  ~RawClient() { leave(); }
  RawClient(RawClient&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)),
        connected_(other.connected_),
        ended_(other.ended_),
        bytes_(std::move(other.bytes_)) {}
  RawClient(const RawClient&) = delete;

  bool connected() const { return connected_; }
  // False: the server takes no more, or took none of it for so long.
  bool send(std::string_view bytes, double seconds = 20) {
    const auto until = after(seconds);
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent > 0) {
        bytes.remove_prefix(static_cast<std::size_t>(sent));
      } else if (errno != EAGAIN || !wait(POLLOUT, until)) {
        return false;
      }
    }
    return true;
  }
  // The next answer; `whole` is false where it did not end in time or the connection ended before.
  HttpSeen answer(bool head_only = false, double seconds = 20) {
    const auto until = after(seconds);
    HttpSeen out;
    while (bytes_.find("\r\n\r\n") == std::string::npos) {
      if (!read(until)) return out;
    }
    out.head = bytes_.substr(0, bytes_.find("\r\n\r\n") + 4);
    bytes_.erase(0, out.head.size());
    take_fields(out);
    if (out.status / 100 == 1 || head_only || out.status == 204) {
      out.whole = true;
    } else if (const auto length = out.fields.find("content-length"); length != out.fields.end()) {
      const std::size_t size = std::stoul(length->second);
      while (bytes_.size() < size && read(until)) {
      }
      out.whole = bytes_.size() >= size;
      out.body = bytes_.substr(0, size);
      bytes_.erase(0, size);
    } else if (out.fields.contains("transfer-encoding")) {
      while (take_chunk(out, until)) {
      }
    } else {
      while (read(until)) {
      }
      out.whole = ended_;
      out.body = std::exchange(bytes_, {});
    }
    return out;
  }
  HttpSeen ask(std::string_view request, bool head_only = false) {
    send(request);
    return answer(head_only);
  }
  // What came and was not read as an answer, until there are so many bytes.
  const std::string& rest(std::size_t bytes = 0, double seconds = 20) {
    const auto until = after(seconds);
    while (bytes_.size() < bytes && read(until)) {
    }
    return bytes_;
  }
  // Whether the server ends the connection within so long.
  bool ends(double seconds = 20) {
    const auto until = after(seconds);
    while (read(until)) {
    }
    return ended_;
  }
  void half_close() { ::shutdown(fd_, SHUT_WR); }
  void leave() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  // The server sees an error instead of an end.
  void reset() {
    const linger at_once = {.l_onoff = 1, .l_linger = 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    leave();
  }

 private:
  using Clock = std::chrono::steady_clock;
  static Clock::time_point after(double seconds) {
    return Clock::now() +
           std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  }
  bool wait(short what, Clock::time_point until) const {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
    pollfd one = {.fd = fd_, .events = what, .revents = 0};
    return ::poll(&one, 1, static_cast<int>(std::max<std::int64_t>(left, 0))) == 1;
  }
  bool read(Clock::time_point until) {
    if (ended_ || fd_ < 0 || !wait(POLLIN, until)) return false;
    char part[1 << 16];
    const ssize_t got = ::recv(fd_, part, sizeof part, MSG_DONTWAIT);
    if (got <= 0) {
      ended_ = true;
      return false;
    }
    bytes_.append(part, static_cast<std::size_t>(got));
    return true;
  }
  static void take_fields(HttpSeen& out) {
    out.status = std::atoi(out.head.substr(out.head.find(' ') + 1).c_str());
    for (std::size_t at = out.head.find("\r\n") + 2; at + 2 < out.head.size();) {
      const std::size_t end = out.head.find("\r\n", at);
      const std::size_t colon = out.head.find(": ", at);
      std::string name = out.head.substr(at, colon - at);
      for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      out.fields[name] = out.head.substr(colon + 2, end - colon - 2);
      at = end + 2;
    }
  }
  // False: there is none, or it was the last.
  bool take_chunk(HttpSeen& out, Clock::time_point until) {
    while (bytes_.find("\r\n") == std::string::npos) {
      if (!read(until)) return false;
    }
    const std::size_t head = bytes_.find("\r\n") + 2;
    const std::size_t size = std::stoul(bytes_, nullptr, 16);
    while (bytes_.size() < head + size + 2) {
      if (!read(until)) return false;
    }
    out.body += bytes_.substr(head, size);
    bytes_.erase(0, head + size + 2);
    out.whole = size == 0;
    return size > 0;
  }

  int fd_ = -1;
  bool connected_ = false, ended_ = false;
  std::string bytes_;
};

// Waits until it is so, for a minute at most.
template <typename Call>
bool comes(const Call& so) {
  for (int i = 0; i < 12000; ++i) {
    if (so()) return true;
    ::usleep(5000);
  }
  return so();
}

}  // namespace tessera
