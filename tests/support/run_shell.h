// A command line as a shell runs it.
#pragma once

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>

namespace tessera {

struct ShellOutcome {
  int code = -1;    // -1: it did not end by itself
  std::string out;  // what it wrote to stdout
};

inline ShellOutcome run_shell(const std::string& command) {
  ShellOutcome outcome;
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return outcome;
  std::array<char, 4096> part;
  while (const std::size_t got = std::fread(part.data(), 1, part.size(), pipe)) {
    outcome.out.append(part.data(), got);
  }
  const int status = pclose(pipe);
  if (WIFEXITED(status)) outcome.code = WEXITSTATUS(status);
  return outcome;
}

}  // namespace tessera
