// What of a job is done, as JSON lines: a header with the job, then one record an item
// or an intention. Each record carries the checksum of its bytes and that of the record before it,
// so a cut, a gap and an edited line differ. One writer at a time (flock).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/core/error.h"
#include "engine/core/file_stream.h"
#include "engine/core/json.h"
#include "engine/core/publish.h"

namespace tessera {

// kRepeats: an image that looks like an earlier one, which has the caption.
enum class ItemState : std::uint8_t { kPending, kDone, kSkipped, kFailed, kRepeats };

// Whether an item must be worked on: kLater when another item at work has its place, and this one
// can have it only if that one fails.
enum class Wanted : std::uint8_t { kNo, kYes, kLater };

enum class Start : std::uint8_t {
  kResume,  // go on with the job of the journal; a journal of another job is refused
  kAnew,    // forget what the journal says
};

// Whose journal it is: its header says so, and no kind of job takes another's.
enum class JournalKind : std::uint8_t { kCaptions, kBatch };

class Journal {
 public:
  // `job` describes options and inputs. kAnew forgets a journal, and nothing else. `replay` sees
  // every record that is whole, in order; what
  // follows the first one that is not is cut off. Where whole records follow the damage, the
  // journal of a batch job is mended instead: mended(). Errors: kStorage E_IO_LOCKED, E_IO_WRITE;
  // kUsage E_JOURNAL (another kind of file or of journal, or its header damaged) and E_JOB_CHANGED,
  // which shows up to 8 differences.
  using Replay = std::function<void(const Json& record)>;
  Journal(const std::filesystem::path& path, const Json& job, Start start, Sync sync,
          const Replay& replay, JournalKind kind = JournalKind::kCaptions);

  // True if the item must be worked on in this run.
  bool wants(const std::string& id, bool retry_failed) const;
  ItemState state(const std::string& id) const;
  struct Totals {
    std::uint64_t done = 0, skipped = 0, failed = 0, repeats = 0;
  };
  Totals totals() const;
  // Failed items that were not done since: id -> {"path", "error"}.
  const std::map<std::string, Json>& failures() const { return failures_; }
  bool resumed() const { return resumed_; }         // the journal held this job before
  bool replaced() const { return replaced_; }       // kAnew, and a journal was there
  bool began_anew() const { return began_anew_; }   // what it holds began with kAnew
  std::uint64_t cut_bytes() const { return cut_; }  // of a torn end, cut off at the start
  // The journal was damaged in the middle: the name next to it under which it was kept, and how many
  // of its records were taken over. Its new end is a record {"mended", "records"}.
  struct Mend {
    std::string kept_as;  // empty: it was not
    std::uint64_t records = 0;
  };
  const Mend& mended() const { return mend_; }

  // Queues a record {"n", fields..., "prev", "crc"}; nothing is written before commit(). A record
  // with "id" and "st" changes the state of the item.
  void add(const Json& fields);
  std::size_t queued() const { return queued_; }
  // Writes and syncs all that is queued; `sync` instead of that of the journal.
  void commit(std::optional<Sync> sync = std::nullopt);

  // add() of {"id", "st": "failed", "path", "error"}.
  void add_failure(const std::string& id, const std::string& path, const ErrorInfo& info);

 private:
  void read(const Json& job, const Replay& replay);
  void mend(std::uint64_t end, const std::vector<Json>& after);
  std::string read_all() const;
  bool has_whole_line() const;
  void forget();
  bool take_line(std::string_view line, const Json& job, const Replay& replay);
  [[noreturn]] void refuse(const char* code, std::string expected, std::string found) const;
  [[noreturn]] void refuse_file(std::string_view start) const;
  bool believe(const Json& record, const Replay& replay);
  void begin(const Json& job);
  void note_state(const Json& record);

  std::unique_ptr<AppendFile> file_;
  Sync sync_;
  JournalKind kind_;
  std::uint64_t count_ = 0, cut_ = 0;
  std::uint32_t last_sum_ = 0;
  bool resumed_ = false, replaced_ = false, began_anew_ = false;
  Mend mend_;
  std::string queue_;
  std::size_t queued_ = 0;
  std::unordered_map<std::string, ItemState> states_;
  std::map<std::string, Json> failures_;
};

// {"path", "id" where it is another, "error": {code, file, where, expected, found, hint}}: a failed
// item as users of JSON lines meet it. Each text is escaped and cut at `most` bytes.
Json failure_json(const std::string& id, const std::string& path, const ErrorInfo& info,
                  std::size_t most = 512);

// What the header calls a journal of that kind: "captions", "batch".
std::string_view journal_kind_name(JournalKind kind);

// The whole records of a journal that somebody may be writing, the header first; nothing is locked
// or changed. Returns what lies after the last of them. Error kStorage, E_IO_OPEN, E_IO_READ.
struct JournalRest {
  std::uint64_t bytes = 0;
  std::uint64_t records = 0;  // whole by themselves: the journal is damaged in the middle
};
JournalRest read_journal(const std::filesystem::path& path, const Journal::Replay& replay);

// Writes the failed items as JSON lines (write_file_atomic); removes the file if there are none.
void write_failures(const std::filesystem::path& path, const Journal& journal);

// "options.prompt: was \"a\", is \"b\"", at most `most` of them, then how many more.
std::vector<std::string> json_differences(const Json& was, const Json& is, std::size_t most);

}  // namespace tessera
