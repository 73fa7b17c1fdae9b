// Where images go: file name patterns with one %d, numbering that never meets an existing file,
// and lists of prompts.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "engine/core/error.h"

namespace tessera {

// "out_%04d.png" with %d, %Nd or %0Nd (N <= 9) once, "%%" for a percent sign, or no number at all.
class NamePattern {
 public:
  // Error kUsage (E_OUTPUT_PATTERN) for anything else, and for a name that does not end in ".png".
  explicit NamePattern(const std::string& pattern);
  bool numbered() const { return numbered_; }
  std::string name(std::int64_t number) const;

 private:
  std::string before_, after_;
  bool numbered_ = false, zeros_ = false;
  int width_ = 0;
};

enum class Existing : std::uint8_t { kKeep, kOverwrite };

// `count` paths below `folder` (absolute patterns stand for themselves), after their folders were
// created and proven writable. kKeep: numbers go on from 1 past every existing file; a fixed name
// that exists is Error kStorage (E_OUTPUT_EXISTS). More than one image with a fixed name: kUsage.
std::vector<std::filesystem::path> plan_outputs(const NamePattern& pattern,
                                                const std::filesystem::path& folder,
                                                std::size_t count, Existing existing);

// One prompt a line; '#' starts a comment line, empty lines are skipped. Error kUsage naming line
// and column.
std::vector<std::string> read_prompt_file(const std::filesystem::path& path);

}  // namespace tessera
