// `tessera serve` in a folder of its own, while a test talks to it.
#pragma once

#include "tests/integration/cli/program.h"
#include "tests/support/http_client.h"

namespace tessera {

class ServeProgram : public ProgramTest {
 protected:
  // Runs `program serve`, calls `meanwhile` with its port and id once it listens; it is to end by
  // itself or by a signal of `meanwhile`.
  ProgramResult serve(std::vector<std::string> more,
                      const std::function<void(std::uint16_t, pid_t)>& meanwhile,
                      const std::string& program = TESSERA_PROGRAM) {
    std::vector<std::string> args = {"serve", "--port", "0"};
    args.insert(args.end(), more.begin(), more.end());
    return run_program(program, args, {}, [&](pid_t child) {
      const std::string line = first_line();
      if (!line.empty())
        meanwhile(static_cast<std::uint16_t>(std::stoi(line.substr(line.rfind(':') + 1))), child);
    });
  }
  // Ends it after `meanwhile`.
  ProgramResult serve_and_end(std::vector<std::string> more,
                              const std::function<void(std::uint16_t)>& meanwhile,
                              const std::string& program = TESSERA_PROGRAM) {
    return serve(
        std::move(more),
        [&](std::uint16_t port, pid_t child) {
          meanwhile(port);
          kill(child, SIGTERM);
        },
        program);
  }
  static std::string post(const std::string& body,
                          const std::string& path = "/v1/images/generations") {
    return "POST " + path +
           " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
           "Content-Length: " +
           std::to_string(body.size()) + "\r\n\r\n" + body;
  }
  static std::string get(const std::string& path, const std::string& fields = "") {
    return "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n" + fields + "\r\n";
  }
  static bool is_at_work(std::uint16_t port) {
    return comes([&] {
      return nlohmann::ordered_json::parse(RawClient(port).ask(get("/health")).body).at("at_work") >
             0;
    });
  }
};

}  // namespace tessera
