// What the programs of sub-commands share.
#include "apps/cli/program.h"

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
  sigaction(SIGUSR1, &action, nullptr);  // of schedulers: the time is nearly over
  // A terminal that closes; who was started to outlive it goes on.
  struct sigaction hangup = {};
  sigaction(SIGHUP, nullptr, &hangup);
  if (hangup.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, nullptr);
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
      std::fprintf(stderr, "%s: stdout cannot be written\n", session.program);
    }
  }
  std::fprintf(stderr, session.color_on_stderr() ? "\033[31m%s:\033[0m %s\n" : "%s: %s\n",
               session.program, format_error(info).c_str());
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
  std::string command = root.get_name();
  for (const CLI::App* sub : root.get_subcommands()) command += " " + sub->get_name();
  return Error({.kind = ErrorKind::kUsage,
                .code = "E_USAGE",
                .where = "command line",
                .expected = "flags as '" + command + " --help' lists them",
                .found = error.what()});
}

// The first word must be a sub-command; the parser itself would only say that one is missing.
void check_command(const CLI::App& root, const ProgramParts& parts, int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') return;
  std::string names, hint;
  for (const CLI::App* command : root.get_subcommands(nullptr)) {
    if (command->get_name() == argv[1]) return;
    names += (names.empty() ? "" : ", ") + command->get_name();
  }
  for (const std::string_view moved : parts.moved) {
    if (moved == argv[1])
      hint = std::string(parts.moved_to) + " has it: " + parts.moved_to + " " + argv[1];
  }
  throw Error({.kind = ErrorKind::kUsage,
               .code = "E_COMMAND",
               .where = "command line",
               .expected = "one of " + names,
               .found = argv[1],
               .hint = hint});
}

int run_command(const ProgramParts& parts, int argc, char** argv, Session& session) {
  CLI::App root(parts.about, parts.name);
  root.set_version_flag("--version", std::string(parts.name) + " " + parts.version);
  root.require_subcommand(1);
  root.fallthrough(false);
  hide_aliases(root);
  parts.add_commands(root, session);
  check_command(root, parts, argc, argv);
  try {
    root.parse(argc, argv);
  } catch (const CLI::Success& success) {
    return root.exit(success);
  } catch (const CLI::ParseError& error) {
    throw usage_error(root, error);
  }
  settle_flags(root, *root.get_subcommands().front(), parts.moved);
  return session.run();
}

}  // namespace

int run_program(const ProgramParts& parts, int argc, char** argv) {
  open_standard_files();
  Session session;
  session.program = parts.name;
  for (int i = 0; i < argc; ++i) session.typed += (i > 0 ? " " : "") + std::string(argv[i]);
  session.stop_signal = &received_signal;
  read_report_flags_early(session, argc, argv);
  install_signal_handlers();
  keep_memory_predictable();
  try {
    return run_command(parts, argc, argv, session);
  } catch (const Error& error) {
    return report(session, error.info());
  } catch (const std::bad_alloc&) {
    return report(session, {.kind = ErrorKind::kMemory,
                            .code = "E_MEMORY",
                            .expected = "enough memory",
                            .found = "none left",
                            .hint = "tessera inspect --memory prints what a model needs"});
  } catch (const std::exception& error) {
    return report(session, {.kind = ErrorKind::kGeneral,
                            .code = "E_INTERNAL",
                            .expected = "no failure inside the program",
                            .found = error.what()});
  }
}

}  // namespace tessera
