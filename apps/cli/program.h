// A program of sub-commands: parses the command line, settles flags, runs one sub-command, and
// turns what went wrong into one line on stderr (or one JSON object on stdout) and an exit code: 0
// done, 1 error, 2 usage, 3 some items failed, 4 model, 5 memory, 6 storage, 130/143 by signal.
#pragma once

#include <span>
#include <string_view>

namespace CLI {
class App;
}

namespace tessera {

struct Session;

struct ProgramParts {
  const char* name;
  const char* about;
  const char* version;
  // Registers every sub-command; each sets session.run in its callback.
  void (*add_commands)(CLI::App& root, Session& session);
  // Commands of another program, which a refusal then names.
  std::span<const std::string_view> moved;
  const char* moved_to = "";
};

// The whole of main(). One call a process: it installs signal handlers.
int run_program(const ProgramParts& parts, int argc, char** argv);

}  // namespace tessera
