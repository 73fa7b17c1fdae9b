// Where a server is.
#pragma once

#include <string>

namespace tessera {

struct ServerAddress {
  std::string host;  // "127.0.0.1", "localhost", "::1"
  std::string port = "80";
  std::string authority() const;  // "127.0.0.1:8080", "[::1]:8080"
  std::string url() const { return "http://" + authority(); }
};

// "http://HOST:PORT". Error kUsage (E_CONNECT_URL) at `where` for others; https by name.
ServerAddress parse_server_address(const std::string& url, const std::string& where);

}  // namespace tessera
