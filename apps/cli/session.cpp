// Output helpers of a session.
#include "apps/cli/session.h"

#include <unistd.h>

#include <algorithm>
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

namespace {

void write_out(std::string_view text) {
  const bool ok =
      std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  if (!ok) {
    throw Error({.kind = ErrorKind::kStorage,
                 .code = errno == EPIPE ? "E_IO_PIPE" : "E_IO_STDOUT",
                 .file = "stdout",
                 .expected = "to write " + std::to_string(text.size()) + " bytes",
                 .found = std::strerror(errno)});
  }
}

}  // namespace

void print_line(std::string_view text) { write_out(std::string(text) + '\n'); }

void print_text(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    out += escape_for_terminal(text.substr(0, end), std::size_t{1} << 20);
    if (end < text.size()) out += '\n';
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  write_out(out);
}

void print_json_line(const nlohmann::ordered_json& object) {
  print_line(object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

void warn(const Session& session, std::string_view text) {
  const std::string line = escape_for_terminal(text);
  std::fprintf(stderr, session.color_on_stderr() ? "\033[33m%s:\033[0m %s\n" : "%s: %s\n",
               session.program, line.c_str());
}

void note(const Session& session, std::string_view text) {
  if (session.verbosity > 0) warn(session, text);
}

nlohmann::ordered_json error_json(const ErrorInfo& info) {
  return {{"code", info.code},         {"file", info.file},   {"where", info.where},
          {"expected", info.expected}, {"found", info.found}, {"hint", info.hint}};
}

}  // namespace tessera
