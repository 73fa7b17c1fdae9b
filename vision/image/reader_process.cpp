// posix_spawn, a socket pair, poll: no signal handler, no thread.
#include "vision/image/reader_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>

#include "engine/core/error.h"
#include "engine/core/index.h"
#include "engine/core/io.h"

namespace tessera {

namespace {

[[noreturn]] void refuse_start(const std::filesystem::path& program, int error) {
  throw Error({.kind = ErrorKind::kGeneral,
               .code = "E_PICTURE_HELPER",
               .file = program.string(),
               .expected = "the process that reads images, next to the program",
               .found = ::strerror(error)});
}

// Attributes and file actions of the child, freed with their scope.
struct SpawnPlan {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;

  explicit SpawnPlan(int socket) {
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, socket, 0);
    posix_spawn_file_actions_addopen(&files, 1, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_adddup2(&files, 1, 2);
    posix_spawn_file_actions_addclosefrom_np(&files, 3);
    posix_spawnattr_init(&attributes);
    sigset_t all, none;
    sigfillset(&all);
    sigemptyset(&none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setsigmask(&attributes, &none);
    // A group of its own: an interrupt typed at the terminal lets the current image end.
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setflags(
        &attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
  }
  ~SpawnPlan() {
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
  }
  SpawnPlan(const SpawnPlan&) = delete;
  SpawnPlan& operator=(const SpawnPlan&) = delete;
};

std::string describe(int status) {
  if (WIFSIGNALED(status)) {
    const char* name = ::sigabbrev_np(WTERMSIG(status));
    return std::string("it was killed by SIG") + (name != nullptr ? name : "?");
  }
  return "it ended with status " + std::to_string(WEXITSTATUS(status));
}

}  // namespace

ReaderProcess::ReaderProcess(const std::filesystem::path& program, std::uint64_t memory_bytes,
                             std::uint64_t cpu_seconds) {
  int ends[2] = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) refuse_start(program, errno);
  const std::string path = program.string();
  std::string name = "tessera-helper",
              memory = std::to_string(std::max<std::uint64_t>(memory_bytes >> 20, 1)),
              seconds = std::to_string(cpu_seconds);
  char* const words[] = {name.data(), memory.data(), seconds.data(), nullptr};
  char* const environment[] = {nullptr};
  const SpawnPlan plan(ends[1]);
  const int error =
      ::posix_spawn(&pid_, path.c_str(), &plan.files, &plan.attributes, words, environment);
  ::close(ends[1]);
  if (error != 0) {
    ::close(ends[0]);
    refuse_start(program, error);
  }
  socket_ = ends[0];
}

ReaderProcess::~ReaderProcess() {
  if (pid_ > 0) end(0);
}

ReaderProcess::Transfer ReaderProcess::wait_for(short events, double deadline) const {
  for (;;) {
    const double left = deadline - monotonic_seconds();
    if (left <= 0) return Transfer::kLate;
    pollfd entry = {socket_, events, 0};
    const int ready = ::poll(&entry, 1, truncate<int>(std::ceil(std::min(left, 3600.0) * 1e3)));
    if (ready > 0) return Transfer::kDone;
    if (ready < 0 && errno != EINTR) return Transfer::kClosed;
  }
}

ReaderProcess::Transfer ReaderProcess::send(const void* data, std::size_t count, double deadline) {
  const auto* at = static_cast<const char*>(data);
  while (count > 0) {
    const ssize_t put = ::send(socket_, at, count, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (put > 0) {
      at += put;
      count -= to_size(put);
    } else if (put < 0 && (errno == EAGAIN || errno == EINTR)) {
      const Transfer waited = wait_for(POLLOUT, deadline);
      if (waited != Transfer::kDone) return waited;
    } else {
      return Transfer::kClosed;
    }
  }
  return Transfer::kDone;
}

ReaderProcess::Transfer ReaderProcess::receive(void* data, std::size_t count, double deadline) {
  auto* at = static_cast<char*>(data);
  while (count > 0) {
    const Transfer waited = wait_for(POLLIN, deadline);
    if (waited != Transfer::kDone) return waited;
    const ssize_t got = ::recv(socket_, at, count, MSG_DONTWAIT);
    if (got > 0) {
      at += got;
      count -= to_size(got);
    } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
      return Transfer::kClosed;
    }
  }
  return Transfer::kDone;
}

bool ReaderProcess::is_idle() const {
  pollfd entry = {socket_, POLLIN, 0};
  return ::poll(&entry, 1, 0) == 0;
}

void ReaderProcess::kill() const {
  if (pid_ > 0) ::kill(pid_, SIGKILL);
}

std::string ReaderProcess::end(double grace) {
  ::close(socket_);
  socket_ = -1;
  int status = 0;
  pid_t gone = 0;
  for (const double until = monotonic_seconds() + grace;;) {
    gone = ::waitpid(pid_, &status, WNOHANG);
    if (gone != 0 || monotonic_seconds() >= until) break;
    const timespec pause = {0, 1'000'000};
    ::nanosleep(&pause, nullptr);
  }
  if (gone == 0) {
    ::kill(pid_, SIGKILL);
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
  }
  pid_ = -1;
  return describe(status);
}

}  // namespace tessera
