#include "apps/helper/socket.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "engine/core/index.h"

namespace tessera::socket {

namespace {

constexpr int kSocket = 0;

}  // namespace

bool read_all(void* to, std::size_t count) {
  auto* at = static_cast<char*>(to);
  while (count > 0) {
    const ssize_t got = ::read(kSocket, at, count);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got;
    count -= to_size(got);
  }
  return true;
}

bool write_all(const void* from, std::size_t count) {
  const auto* at = static_cast<const char*>(from);
  while (count > 0) {
    const ssize_t put = ::write(kSocket, at, count);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    at += put;
    count -= to_size(put);
  }
  return true;
}

bool skip(std::uint64_t count) {
  char buffer[4096];
  while (count > 0) {
    const auto step = std::min<std::uint64_t>(count, sizeof buffer);
    if (!read_all(buffer, step)) return false;
    count -= step;
  }
  return true;
}

}  // namespace tessera::socket
