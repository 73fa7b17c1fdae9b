// Runs the real `tessera` program in a folder of its own and keeps what it said.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/temp_folder.h"

namespace tessera {

// What the JSON line of a generated image begins with, in this order.
inline constexpr const char* kImageLine[] = {"path",
                                               "sha256",
                                               "id",
                                               "seed",
                                               "width",
                                               "height",
                                               "tokens",
                                               "passes",
                                               "tokens_per_pass",
                                               "window",
                                               "decode",
                                               "accept",
                                               "preserves_distribution",
                                               "seconds"};

// For programs whose memory is watched: what is freed leaves the resident set at once, so that it
// shows what is held.
inline const std::map<std::string, std::string> kHonestMalloc = {
    {"MALLOC_ARENA_MAX", "1"},
    {"MALLOC_MMAP_THRESHOLD_", "65536"},
    {"MALLOC_TRIM_THRESHOLD_", "65536"}};

struct ProgramResult {
  int exit_code = -1;  // -1: ended by a signal
  std::string out, err;
  std::int64_t peak_bytes = 0;

  std::vector<nlohmann::ordered_json> json_lines() const {
    std::vector<nlohmann::ordered_json> lines;
    std::istringstream in(out);
    for (std::string line; std::getline(in, line);) {
      lines.push_back(nlohmann::ordered_json::parse(line));
    }
    return lines;
  }
  // Lines on stderr.
  std::size_t error_lines() const {
    return static_cast<std::size_t>(std::count(err.begin(), err.end(), '\n'));
  }
};

class ProgramTest : public ::testing::Test {
 protected:
  // Runs `tessera args...`. `meanwhile` is called with the child's id while it runs.
  ProgramResult run(std::vector<std::string> args,
                    const std::map<std::string, std::string>& extra = {},
                    const std::function<void(pid_t)>& meanwhile = nullptr,
                    const char* stdout_path = nullptr) {
    return run_program(TESSERA_PROGRAM, std::move(args), extra, meanwhile, stdout_path);
  }
  // The same with a program at another place.
  ProgramResult run_program(const std::string& program, std::vector<std::string> args,
                            const std::map<std::string, std::string>& extra = {},
                            const std::function<void(pid_t)>& meanwhile = nullptr,
                            const char* stdout_path = nullptr) {
    const auto out = logs_ / "stdout", err = logs_ / "stderr";
    args.insert(args.begin(), program);
    std::vector<char*> argv;
    for (std::string& arg : args) argv.push_back(arg.data());
    argv.push_back(nullptr);
    std::vector<std::string> variables = {"PATH=/usr/bin:/bin", "LC_ALL=C",
                                          "HOME=" + home_.path().string()};
    for (const auto& [name, value] : extra) variables.push_back(name + "=" + value);
    std::vector<char*> environment;
    for (std::string& variable : variables) environment.push_back(variable.data());
    environment.push_back(nullptr);
    // Emptied before there is a child: one that is killed at once says nothing, and not what the
    // last one said.
    constexpr int kFresh = O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC;
    const int out_fd = open(stdout_path != nullptr ? stdout_path : out.c_str(), kFresh, 0600);
    const int err_fd = open(err.c_str(), kFresh, 0600);
    const pid_t child = fork();
    if (child == 0) {
      dup2(out_fd, 1);
      dup2(err_fd, 2);
      if (chdir(folder_.path().c_str()) != 0) _exit(99);
      execve(argv[0], argv.data(), environment.data());
      _exit(98);
    }
    close(out_fd);
    close(err_fd);
    if (meanwhile) meanwhile(child);
    int status = 0;
    struct rusage usage = {};
    wait4(child, &status, 0, &usage);
    ProgramResult result;
    result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    result.out = stdout_path != nullptr ? "" : get_file(out);
    result.err = get_file(err);
    result.peak_bytes = usage.ru_maxrss * 1024;
    return result;
  }

  // Of what the program that runs prints, once it is whole; empty where it does not come in a minute.
  std::string first_line() const {
    for (int i = 0; i < 12000; ++i) {
      const std::string out = get_file(logs_ / "stdout");
      if (const std::size_t end = out.find('\n'); end != std::string::npos) return out.substr(0, end);
      usleep(5000);
    }
    ADD_FAILURE() << "no line; " << get_file(logs_ / "stderr");
    return "";
  }

  // Names in the working folder, sorted.
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_.path())) {
      if (entry.is_regular_file()) {
        names.push_back(std::filesystem::relative(entry.path(), folder_.path()).string());
      }
    }
    std::sort(names.begin(), names.end());
    return names;
  }
  std::string content(const std::string& name) const { return get_file(folder_ / name); }

  TempFolder folder_, home_, logs_;
};

}  // namespace tessera
