// Programs that must not outlive a test, whatever becomes of it: a process of its own, outside the
// test's tree, starts them, adopts what they leave after, and ends all of it when the test lets go
// or dies. Then it removes the folders that were theirs.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "engine/core/error.h"

namespace tessera {

class Guardian {
 public:
  struct Command {
    std::vector<std::string> words;  // the program's path first
    std::vector<std::string> environment;
    std::filesystem::path log;  // stdout and stderr
  };

  // Starts the commands; `folders` go when they have ended.
  Guardian(const std::vector<Command>& commands,
           const std::vector<std::filesystem::path>& folders) {
    int let_go[2], over[2];
    expects(::pipe2(let_go, O_CLOEXEC) == 0 && ::pipe2(over, O_CLOEXEC) == 0, "pipes can be made");
    const pid_t between = ::fork();
    expects(between >= 0, "a process can be made");
    if (between == 0) {
      ::setsid();
      if (::fork() != 0) ::_exit(0);  // so that what kills the test's children misses the guardian
      for (int fd = 3; fd < 1024; ++fd) {  // another guardian's end of a pipe among them
        if (fd != let_go[0] && fd != over[1]) ::close(fd);
      }
      guard(commands, folders, let_go[0]);
    }
    ::waitpid(between, nullptr, 0);
    ::close(let_go[0]);
    ::close(over[1]);
    hold_ = let_go[1];
    over_ = over[0];
  }
  // Returns when nothing is left.
  ~Guardian() {
    ::close(hold_);
    char byte;
    while (::read(over_, &byte, 1) < 0 && errno == EINTR) continue;
    ::close(over_);
  }
  Guardian(const Guardian&) = delete;
  Guardian& operator=(const Guardian&) = delete;

  // Processes below `root`, in no order.
  static std::vector<pid_t> descendants(pid_t root) {
    std::multimap<pid_t, pid_t> children;
    std::error_code gone;
    for (std::filesystem::directory_iterator at("/proc", gone), end; at != end;
         at.increment(gone)) {
      const std::string name = at->path().filename().string();
      if (name.find_first_not_of("0123456789") != std::string::npos) continue;
      std::string line;
      std::getline(std::ifstream(at->path() / "stat"), line);
      const std::size_t name_end = line.rfind(") ");  // then the state and the parent
      if (name_end == std::string::npos || line.size() < name_end + 5) continue;
      children.emplace(std::atoi(line.c_str() + name_end + 4), std::atoi(name.c_str()));
    }
    std::vector<pid_t> found = {root};
    for (std::size_t i = 0; i < found.size(); ++i) {
      const auto [first, last] = children.equal_range(found[i]);
      for (auto child = first; child != last; ++child) found.push_back(child->second);
    }
    found.erase(found.begin());
    return found;
  }

 private:
  [[noreturn]] static void guard(const std::vector<Command>& commands,
                                 const std::vector<std::filesystem::path>& folders, int let_go) {
    const int none = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    for (const int fd : {0, 1, 2}) ::dup2(none, fd);
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    ::signal(SIGCHLD, SIG_IGN);  // the dead need no burial
    for (const Command& command : commands) start(command);
    char byte;
    while (::read(let_go, &byte, 1) < 0 && errno == EINTR) continue;
    for (int i = 0; i < 5000; ++i) {
      const std::vector<pid_t> left = descendants(::getpid());
      if (left.empty()) break;
      for (const pid_t process : left) ::kill(process, SIGKILL);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    for (const auto& folder : folders) {
      std::error_code ignored;
      std::filesystem::remove_all(folder, ignored);
    }
    ::_exit(0);
  }

  static void start(const Command& command) {
    const pid_t guardian = ::getpid();
    if (::fork() != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != guardian) ::_exit(97);
    ::signal(SIGCHLD, SIG_DFL);
    const int log = ::open(command.log.c_str(), O_CREAT | O_APPEND | O_WRONLY | O_CLOEXEC, 0600);
    ::dup2(log, 1);
    ::dup2(log, 2);
    std::vector<char*> words, environment;
    for (const std::string& word : command.words) words.push_back(const_cast<char*>(word.c_str()));
    for (const std::string& variable : command.environment) {
      environment.push_back(const_cast<char*>(variable.c_str()));
    }
    words.push_back(nullptr);
    environment.push_back(nullptr);
    ::execve(words[0], words.data(), environment.data());
    ::_exit(98);
  }

  int hold_ = -1, over_ = -1;
};

}  // namespace tessera
