// The `tessera` program: parses the command line, settles flags, runs one sub-command, and turns
// what went wrong into one line on stderr (or one JSON object on stdout) and an exit code:
// 0 done, 1 error, 2 usage, 3 some items failed, 4 model, 5 memory, 6 storage, 130/143 by signal.
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string_view>

#include "apps/cli/commands.h"
#include "apps/cli/flags.h"
#include "apps/cli/session.h"
#include "apps/cli/setting_flags.h"
#include "engine/core/error.h"

namespace tessera {
namespace {

std::atomic<int> received_signal{0};
static_assert(std::atomic<int>::is_always_lock_free);

// First signal: asks the running work to stop after its current step. Second: stops now; files
// already renamed into place stay.
extern "C" void on_signal(int number) {
  int none = 0;
  if (!received_signal.compare_exchange_strong(none, number)) _exit(128 + number);
}

void install_signal_handlers() {
  struct sigaction action = {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  // A reader of stdout that goes away is an error of the write, not the end of a job.
  action.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &action, nullptr);
}

// A file opened in the place of a closed stdin, stdout or stderr would take what is printed.
void open_standard_files() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) != -1 || errno != EBADF) continue;
    // The lowest free number is this one.
    if (open("/dev/null", fd == STDIN_FILENO ? O_RDONLY : O_WRONLY) != fd) _exit(1);
  }
}

// Buffers of a megabyte or more are taken from the system one by one and released when freed. The
// C library would raise this limit on its own after the first one and keep holes of freed memory,
// and a run would take more than the memory plan says.
void keep_memory_predictable() {
  mallopt(M_MMAP_THRESHOLD, 1 << 20);
  mallopt(M_TRIM_THRESHOLD, 1 << 20);
  mallopt(M_ARENA_MAX, 1);
}

int report(const Session& session, const ErrorInfo& info) {
  if (session.json) {
    try {
      print_json_line({{"error", error_json(info)}});
    } catch (const Error&) {
      // stdout itself is gone; the line on stderr below still tells.
      std::fprintf(stderr, "tessera: stdout cannot be written\n");
    }
  }
  std::fprintf(stderr, session.color_on_stderr() ? "\033[31mtessera:\033[0m %s\n" : "tessera: %s\n",
               format_error(info).c_str());
  return static_cast<int>(info.kind);
}

// The flags of the command line are not known yet when parsing fails, so these two are looked for.
void read_report_flags_early(Session& session, int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--") break;
    if (word == "--json") session.json = true;
    if (word == "--color=never") session.color = ColorMode::kNever;
  }
}

Error usage_error(const CLI::App& root, const CLI::ParseError& error) {
  std::string command = "tessera";
  for (const CLI::App* sub : root.get_subcommands()) command += " " + sub->get_name();
  return Error({.kind = ErrorKind::kUsage,
                .code = "E_USAGE",
                .where = "command line",
                .expected = "flags as '" + command + " --help' lists them",
                .found = error.what()});
}

// The first word must be a sub-command; the parser itself would only say that one is missing.
void check_command(const CLI::App& root, int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') return;
  std::string names;
  for (const CLI::App* command : root.get_subcommands(nullptr)) {
    if (command->get_name() == argv[1]) return;
    names += (names.empty() ? "" : ", ") + command->get_name();
  }
  throw Error({.kind = ErrorKind::kUsage,
               .code = "E_COMMAND",
               .where = "command line",
               .expected = "one of " + names,
               .found = argv[1]});
}

int run_program(int argc, char** argv, Session& session) {
  CLI::App root("Tessera generates images with autoregressive models.", "tessera");
  root.set_version_flag("--version", "tessera " TESSERA_VERSION);
  root.require_subcommand(1);
  root.fallthrough(false);
  hide_aliases(root);
  add_commands(root, session);
  check_command(root, argc, argv);
  try {
    root.parse(argc, argv);
  } catch (const CLI::Success& success) {
    return root.exit(success);
  } catch (const CLI::ParseError& error) {
    throw usage_error(root, error);
  }
  settle_flags(root, *root.get_subcommands().front());
  return session.run();
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  using tessera::ErrorInfo;
  using tessera::ErrorKind;
  tessera::open_standard_files();
  tessera::Session session;
  session.stop_signal = &tessera::received_signal;
  tessera::read_report_flags_early(session, argc, argv);
  tessera::install_signal_handlers();
  tessera::keep_memory_predictable();
  try {
    return tessera::run_program(argc, argv, session);
  } catch (const tessera::Error& error) {
    return tessera::report(session, error.info());
  } catch (const std::bad_alloc&) {
    return tessera::report(session, {.kind = ErrorKind::kMemory,
                                     .code = "E_MEMORY",
                                     .expected = "enough memory",
                                     .found = "none left",
                                     .hint = "tessera inspect --memory prints what a model needs"});
  } catch (const std::exception& error) {
    return tessera::report(session, {.kind = ErrorKind::kGeneral,
                                     .code = "E_INTERNAL",
                                     .expected = "no failure inside the program",
                                     .found = error.what()});
  }
}
