// Lists of images as JSON lines: {"image": path relative to the list, "id": ..., "prompt": ...}.
// A list is a job file: it is checked whole, with line and column of up to 20 errors, before
// anything runs. Read line by line, whatever its length.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "apps/captions/line_reader.h"
#include "engine/core/error.h"
#include "engine/core/file_stream.h"

namespace tessera {

struct ListEntry {
  std::uint64_t line = 0;  // from 1
  std::string image;       // as written
  std::optional<std::string> id, prompt;
};

enum class OutsidePaths : std::uint8_t { kRefused, kAllowed };

class CaptionListReader {
 public:
  static constexpr std::size_t kMaxLineBytes = LineReader::kMaxLineBytes;
  static constexpr std::size_t kMaxPromptBytes = std::size_t{64} << 10;

  // Error kUsage if the file cannot be read.
  CaptionListReader(const std::filesystem::path& list, OutsidePaths outside);

  // The entry of the next line that is not empty; nullopt at the end. Error kUsage with "line L,
  // column C" (characters, from 1): E_JSON*, E_LIST_FIELD (missing, unknown or of another type),
  // E_LIST_PATH (absolute, "..", control characters), E_LIST_ID, E_LIST_LINE (too long). Reading
  // may go on with the next line.
  std::optional<ListEntry> next();

 private:
  std::string file_;
  OutsidePaths outside_;
  InputFile source_;
  LineReader lines_;
};

// Where an id was first seen, over all lists of a job.
using IdPlaces = std::unordered_map<std::string, std::string>;

struct ListCheck {
  std::uint64_t entries = 0;
  std::string digest;             // of what the entries say
  std::vector<ErrorInfo> errors;  // at most `max_errors`
};
// Reads the whole list. An id that is there twice (without one: the path) is E_LIST_DUPLICATE and
// names both lines.
ListCheck check_caption_list(const std::filesystem::path& list, OutsidePaths outside,
                             IdPlaces& places, std::size_t max_errors);

// The id of an entry: its own, kept apart from paths (listed_id), or the path of the image.
std::string list_item_id(const std::filesystem::path& list, const ListEntry& entry);

}  // namespace tessera
