// One request to a server over plain TCP, and its answer as it comes. What the server sends is a
// stranger's: bounded in bytes and time.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "apps/client/server_address.h"

namespace tessera {

struct ClientRequest {
  std::string method = "GET", path = "/";
  std::string body = {};  // JSON; empty = none
};

struct ClientLimits {
  double connect_seconds = 10;  // names and connections
  double silent_seconds = 900;  // without a byte: images wait for their turn
  double whole_seconds = 7200;  // for all of it
  std::uint64_t body_bytes = std::uint64_t{512} << 20;
};

struct AnswerHead {
  int status = 0;
  std::string type;  // "application/json"
};

struct ClientCalls {
  // Asked every few milliseconds; true ends the connection.
  std::function<bool()> cancelled;
  std::function<void(const AnswerHead&)> on_head;
  std::function<void(std::string_view)> on_body;  // pieces, in order
};

// Looks for the server, asks and reads, on this thread. `key`: sent as a bearer; empty = none. False:
// it was cancelled. Error kGeneral at the server's address: E_SERVER_GONE for a server that is not
// there or leaves, E_SERVER_SLOW beyond a limit of time, E_SERVER_ANSWER for what is no answer of
// HTTP or too long. What a call throws ends the connection and is thrown on.
bool ask_server(const ServerAddress& server, const std::string& key, const ClientRequest& request,
                const ClientLimits& limits, const ClientCalls& calls);

[[noreturn]] void refuse_server(const ServerAddress& server, const char* code, std::string expected,
                                std::string found);

}  // namespace tessera
