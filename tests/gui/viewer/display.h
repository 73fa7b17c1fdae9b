// A display of its own for a test: an Xvfb process on a free display number, ended with its scope.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace tessera {

class Display {
 public:
  static std::filesystem::path program() {
    for (const char* place : {"/usr/bin/Xvfb", "/usr/local/bin/Xvfb"}) {
      if (std::filesystem::exists(place)) return place;
    }
    return {};
  }

  // Without a name when it did not start. The server itself finds the free number and tells it.
  Display() {
    int ends[2];
    if (pipe(ends) != 0) return;
    child_ = fork();
    if (child_ == 0) {
      close(ends[0]);
      const int nothing = open("/dev/null", O_RDWR);
      dup2(nothing, STDOUT_FILENO);
      dup2(nothing, STDERR_FILENO);
      const std::string fd = std::to_string(ends[1]);
      execl(program().c_str(), "Xvfb", "-displayfd", fd.c_str(), "-screen", "0", "1600x1000x24",
            "-nolisten", "tcp", static_cast<char*>(nullptr));
      _exit(127);
    }
    close(ends[1]);
    struct pollfd ready = {ends[0], POLLIN, 0};
    constexpr int kPatience = 60000;  // milliseconds
    while (poll(&ready, 1, kPatience) > 0) {
      char byte = 0;
      if (read(ends[0], &byte, 1) != 1) break;
      if (byte == '\n') {
        name_ = ":" + number_;
        break;
      }
      number_ += byte;
    }
    close(ends[0]);
  }
  ~Display() {
    if (child_ <= 0) return;
    kill(child_, SIGTERM);
    waitpid(child_, nullptr, 0);
  }
  Display(const Display&) = delete;

  const std::string& name() const { return name_; }  // ":7"

 private:
  pid_t child_ = -1;
  std::string number_, name_;
};

}  // namespace tessera
