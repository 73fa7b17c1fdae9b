// File name patterns and prompt files.
#include "apps/runtime/output_names.h"

#include <algorithm>
#include <set>

#include "engine/core/index.h"
#include "engine/core/io.h"
#include "engine/core/utf8.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kMaxPromptFileBytes = std::size_t{64} << 20;
constexpr std::size_t kMaxPromptBytes = std::size_t{64} << 10;

[[noreturn]] void refuse_pattern(const std::string& pattern, std::string found) {
  throw Error({.kind = ErrorKind::kUsage,
               .code = "E_OUTPUT_PATTERN",
               .file = pattern,
               .where = "--output",
               .expected = "a name ending in .png with at most one %d or %0Nd",
               .found = std::move(found)});
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

NamePattern::NamePattern(const std::string& pattern) {
  std::string* part = &before_;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '%') {
      *part += pattern[i];
      continue;
    }
    if (i + 1 < pattern.size() && pattern[i + 1] == '%') {
      *part += '%';
      ++i;
      continue;
    }
    if (numbered_) refuse_pattern(pattern, "a second number");
    ++i;
    zeros_ = i < pattern.size() && pattern[i] == '0';
    if (zeros_) ++i;
    if (i < pattern.size() && is_digit(pattern[i])) width_ = pattern[i++] - '0';
    if (i >= pattern.size() || pattern[i] != 'd') refuse_pattern(pattern, "another conversion");
    numbered_ = true;
    part = &after_;
  }
  const std::string whole = before_ + after_;
  if (!whole.ends_with(".png")) refuse_pattern(pattern, "another ending");
  if (fs::path(whole).filename() == ".png" && !numbered_) refuse_pattern(pattern, "no name");
}

std::string NamePattern::name(std::int64_t number) const {
  if (!numbered_) return before_;
  std::string digits = std::to_string(number);
  const auto missing = to_size(width_) > digits.size() ? to_size(width_) - digits.size() : 0;
  return before_ + std::string(missing, zeros_ ? '0' : ' ') + digits + after_;
}

std::vector<fs::path> plan_outputs(const NamePattern& pattern, const fs::path& folder,
                                   std::size_t count, Existing existing) {
  if (count > 1 && !pattern.numbered()) {
    throw Error(
        {.kind = ErrorKind::kUsage,
         .code = "E_OUTPUT_PATTERN",
         .file = pattern.name(0),
         .where = "--output",
         .expected = "a pattern such as out_%04d.png for " + std::to_string(count) + " images",
         .found = "one fixed name"});
  }
  std::vector<fs::path> paths;
  std::set<fs::path> proven;
  for (std::int64_t number = 1; paths.size() < count; ++number) {
    const fs::path path = folder / pattern.name(number);
    const fs::path parent = path.has_parent_path() ? path.parent_path() : fs::path(".");
    if (proven.insert(parent).second) ensure_output_folder(parent);
    if (existing == Existing::kKeep && file_exists(path)) {
      if (pattern.numbered()) continue;
      throw Error({.kind = ErrorKind::kStorage,
                   .code = "E_OUTPUT_EXISTS",
                   .file = path.string(),
                   .where = "--output",
                   .expected = "no file of this name",
                   .found = "one",
                   .hint = "--overwrite replaces it"});
    }
    if (is_folder(path)) {
      throw Error({.kind = ErrorKind::kStorage,
                   .code = "E_OUTPUT_FOLDER",
                   .file = path.string(),
                   .where = "--output",
                   .expected = "a file name",
                   .found = "a folder of this name"});
    }
    paths.push_back(path);
  }
  return paths;
}

std::vector<std::string> read_prompt_file(const fs::path& path) {
  const std::string text = read_file(path, kMaxPromptFileBytes, ErrorKind::kUsage);
  std::vector<std::string> prompts;
  std::size_t line_number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    ++line_number;
    if (line_number == 1 && line.starts_with("\xef\xbb\xbf")) line.erase(0, 3);
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ' || line.back() == '\t')) {
      line.pop_back();
    }
    if (line.empty() || line.front() == '#') continue;
    std::size_t bad = 0;
    while (bad < line.size() && line[bad] != '\0') {
      const Utf8Char c = decode_utf8(line, bad);
      if (!c.valid) break;
      bad += c.length;
    }
    if (bad < line.size() || line.size() > kMaxPromptBytes) {
      throw Error({.kind = ErrorKind::kUsage,
                   .code = "E_PROMPT_FILE",
                   .file = path.string(),
                   .where = std::to_string(line_number) + ":" +
                            std::to_string(std::min(bad, kMaxPromptBytes) + 1),
                   .expected = "UTF-8 without NUL, at most 65536 bytes a line",
                   .found = bad < line.size() ? "another byte" : "a longer line"});
    }
    prompts.push_back(std::move(line));
  }
  if (prompts.empty()) {
    throw Error({.kind = ErrorKind::kUsage,
                 .code = "E_PROMPT_FILE",
                 .file = path.string(),
                 .where = "1:1",
                 .expected = "a prompt a line",
                 .found = "none"});
  }
  return prompts;
}

}  // namespace tessera
