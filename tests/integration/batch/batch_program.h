// `tessera batch` through the real program, on a model that takes milliseconds.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "tests/integration/cli/program.h"

namespace tessera {

// Folders on a file system in memory, where there is one: hundreds of syncs follow.
struct FoldersInMemory {
  FoldersInMemory() {
    if (access("/dev/shm", W_OK) == 0) setenv("TMPDIR", "/dev/shm", 1);
  }
};

class BatchTest : private FoldersInMemory, public ProgramTest {
 protected:
  static std::vector<std::string> words(const std::string& job, const std::string& out,
                                        const std::vector<std::string>& more) {
    std::vector<std::string> args = {"batch", job,         "--output-dir", out,
                                     "-m",    "test:tiny", "-t",           "1"};
    args.insert(args.end(), more.begin(), more.end());
    return args;
  }
  ProgramResult batch(const std::string& job, const std::string& out,
                      const std::vector<std::string>& more = {}) {
    return run(words(job, out, more));
  }
  // Writes a job of `count` items with ids p1, p2, ... and returns its name.
  std::string put_job(int count, const std::string& name = "job.jsonl") {
    std::string text;
    for (int i = 1; i <= count; ++i) {
      text += "{\"id\":\"p" + std::to_string(i) + "\",\"prompt\":\"picture " + std::to_string(i) +
              "\"}\n";
    }
    put_file(folder_ / name, text);
    return name;
  }
  // Name and bytes of the images in a folder.
  std::map<std::string, std::string> images(const std::string& out) const {
    std::map<std::string, std::string> all;
    for (const std::string& name : files()) {
      if (name.starts_with(out + "/") && name.ends_with(".png")) {
        all[name.substr(out.size() + 1)] = content(name);
      }
    }
    return all;
  }
  // Everything of a folder but the state of the job.
  std::map<std::string, std::string> tree(const std::string& out) const {
    std::map<std::string, std::string> all;
    for (const std::string& name : files()) {
      const bool ours = name.starts_with(out + "/");
      if (ours && name.find("/.tessera/") == std::string::npos) {
        all[name.substr(out.size() + 1)] = content(name);
      }
    }
    return all;
  }
  std::size_t temporaries() const {
    const auto names = files();
    return static_cast<std::size_t>(std::count_if(
        names.begin(), names.end(),
        [](const std::string& name) { return name.find(".tmp-") != std::string::npos; }));
  }
  std::size_t lines_of(const std::string& name) const {
    const std::string text = content(name);
    return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
  }
};

}  // namespace tessera
