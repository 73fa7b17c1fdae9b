// Job files of the batch renderer: the same list of items from a text (one prompt a line, '#' for
// comments), from JSON lines (fields named after the long flags of `generate`, plus "id") or from
// CSV with a header (RFC 4180). A job file is a stranger's: it is read in pieces, checked whole
// before anything runs, and every error names line and column.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apps/runtime/output_settings.h"
#include "engine/core/error.h"
#include "engine/core/file_stream.h"
#include "engine/core/index.h"

namespace tessera {

// What an item is, as the field "kind" says it.
inline constexpr const char* kImageKind = "image";
inline constexpr const char* kOldImageKind = "picture";  // the same, in older jobs
inline constexpr const char* kVideoKind = "video";

// What a job says about one image or video. Empty values come from flags, then from the model's
// preset.
struct JobItem {
  std::uint64_t line = 0;  // where it begins in its file, from 1; no part of the item
  std::string id;          // as given, or made from what the item says
  std::string prompt;
  std::optional<std::string> negative_prompt;
  std::optional<std::int64_t> seed;  // 0 to kMaxJobSeed
  SettingValues settings;            // rows with the door kField that have no member here
  std::optional<std::string> kind;   // kImageKind (or the old one), the same as none, or kVideoKind
  // Of videos alone.
  std::optional<std::int64_t> frames, fps;                       // of the whole video; a second
  std::optional<std::string> container;                          // an ending without its dot
  std::optional<std::string> first_frames, first_frames_sha256;  // a file and what it must hold

  bool is_video() const { return kind == kVideoKind; }
  friend bool operator==(const JobItem& a, const JobItem& b);
};

// Integers that every reader of JSON keeps exact.
inline constexpr std::int64_t kMaxJobSeed = (std::int64_t{1} << 53) - 1;
inline constexpr std::size_t kMaxJobPromptBytes = std::size_t{64} << 10;
inline constexpr std::size_t kMaxJobItems = 1000000;
inline constexpr std::int64_t kMaxVideoFrames = truncate<std::int64_t>(setting::kFrames.high);

enum class JobForm : std::uint8_t { kText, kJsonLines, kCsv };
// By the ending: .txt, .jsonl or .ndjson, .csv. Error kUsage, E_JOB_FORM.
JobForm job_form_of(const std::filesystem::path& path);

struct JobList {
  std::vector<JobItem> items;     // in the order of the file
  std::vector<ErrorInfo> errors;  // of kind kUsage; at most 20, then reading stops
};
inline constexpr std::size_t kMaxJobErrors = 20;

// Errors: E_JOB_LINE (over 1 MiB), E_JOB_TEXT (not UTF-8, NUL), E_JOB_FIELD (unknown, missing,
// twice, of another type or out of range), E_JOB_ID, E_JOB_DUPLICATE (names both lines), E_JOB_CSV,
// E_JSON..., E_JOB_EMPTY, E_JOB_SIZE (more than a million items or 256 MiB of text).
JobList read_job(ByteSource& source, const std::string& file, JobForm form);
// The same with the file opened by its name; E_IO_OPEN and E_JOB_FORM are thrown, kind kUsage.
JobList read_job_file(const std::filesystem::path& path);

// One JSON line of the item as read_job() takes it, id first, fields in a fixed order; without the
// line break.
std::string job_line(const JobItem& item);

// An id for an item without one, from what it says: "a-large-red-sphere-9f86d081884c".
std::string made_item_id(const JobItem& item);

}  // namespace tessera
