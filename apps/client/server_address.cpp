#include "apps/client/server_address.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "engine/core/error.h"

namespace tessera {

namespace {

constexpr std::size_t kMaxHost = 253;  // of a name, RFC 1035

[[noreturn]] void refuse(const std::string& where, const std::string& url, std::string expected,
                         std::string hint = "") {
  throw Error({.kind = ErrorKind::kUsage,
               .code = "E_CONNECT_URL",
               .where = where,
               .expected = std::move(expected),
               .found = "'" + escape_for_terminal(url, 128) + "'",
               .hint = std::move(hint)});
}

bool is_host(std::string_view host, std::string_view more) {
  return !host.empty() && host.size() <= kMaxHost &&
         std::all_of(host.begin(), host.end(), [&](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  more.find(c) != std::string_view::npos;
         });
}

}  // namespace

std::string ServerAddress::authority() const {
  return (host.find(':') == std::string::npos ? host : "[" + host + "]") + ":" + port;
}

ServerAddress parse_server_address(const std::string& url, const std::string& where) {
  constexpr std::string_view kExpected = "http://HOST:PORT";
  std::string_view rest = url;
  if (rest.starts_with("https://")) {
    refuse(where, url, "an address of http://", "a proxy on this machine can speak TLS for it");
  }
  constexpr std::string_view kScheme = "http://";
  if (!rest.starts_with(kScheme)) refuse(where, url, std::string(kExpected));
  rest.remove_prefix(kScheme.size());
  if (rest.ends_with('/')) rest.remove_suffix(1);
  ServerAddress out;
  const bool bracket = rest.starts_with('[');
  const std::size_t end = bracket ? rest.find(']') : rest.find(':');
  out.host = rest.substr(bracket ? 1 : 0, bracket ? end - 1 : end);
  const bool good = is_host(out.host, bracket ? ":." : "-._") && !(bracket && end == rest.npos);
  if (!good) refuse(where, url, std::string(kExpected));
  rest.remove_prefix(std::min(rest.size(), bracket ? end + 1 : end));
  if (rest.empty()) return out;
  int port = 0;
  const std::string_view digits = rest.substr(1);
  const auto [last, bad] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (rest[0] != ':' || bad != std::errc{} || last != digits.data() + digits.size() || port < 1 ||
      port > 65535) {
    refuse(where, url, std::string(kExpected) + ", the port from 1 to 65535");
  }
  out.port = std::to_string(port);
  return out;
}

}  // namespace tessera
