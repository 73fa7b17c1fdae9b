// Output helpers of a session.
#include "apps/cli/session.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>

namespace tessera {

bool Session::color_on_stderr() const {
  if (color != ColorMode::kAuto) return color == ColorMode::kAlways;
  const char* no_color = std::getenv("NO_COLOR");
  if (no_color != nullptr && *no_color != '\0') return false;
  return isatty(STDERR_FILENO) == 1;
}

void print_line(std::string_view text) {
  const bool ok = std::fwrite(text.data(), 1, text.size(), stdout) == text.size() &&
                  std::fputc('\n', stdout) != EOF && std::fflush(stdout) == 0;
  if (!ok) {
    throw Error({.kind = ErrorKind::kStorage,
                 .code = "E_IO_STDOUT",
                 .file = "stdout",
                 .expected = "to write " + std::to_string(text.size() + 1) + " bytes",
                 .found = std::strerror(errno)});
  }
}

void print_json_line(const nlohmann::ordered_json& object) {
  print_line(object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

void warn(const Session& session, std::string_view text) {
  const std::string line = escape_for_terminal(text);
  std::fprintf(stderr, session.color_on_stderr() ? "\033[33mtessera:\033[0m %s\n" : "tessera: %s\n",
               line.c_str());
}

void note(const Session& session, std::string_view text) {
  if (session.verbosity > 0) warn(session, text);
}

nlohmann::ordered_json error_json(const ErrorInfo& info) {
  return {{"code", info.code},         {"file", info.file},   {"where", info.where},
          {"expected", info.expected}, {"found", info.found}, {"hint", info.hint}};
}

}  // namespace tessera
