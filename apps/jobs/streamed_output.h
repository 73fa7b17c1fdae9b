// Captions of a whole job in one file: JSON lines, CSV or a WebDataset. Written as "<output>.part"
// with "<output>.journal" next to it and renamed when the job is over; a run that was killed at any
// byte goes on where the journal ends, with nothing lost and nothing twice.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apps/captions/output_forms.h"
#include "apps/jobs/journal.h"
#include "apps/jobs/places.h"

namespace tessera {

struct StreamOptions {
  OutputForm form = OutputForm::kJsonLines;
  std::vector<std::string> columns;                        // CSV: the fields of a result, in order
  bool formula_safe = true;                                // CSV
  std::string caption_extension = "txt";                   // tar
  ExistingCaption existing = ExistingCaption::kOverwrite;  // tar: a carried caption member
  Start start = Start::kResume;
  Sync sync = Sync::kOn;
  std::size_t group_items = 32;  // records are committed together, at most so many ...
  double group_seconds = 0.2;    // ... or when the first has waited so long
  Journal::Replay notes;         // hears the records of earlier runs, too
};

class StreamedOutput {
 public:
  // Errors: those of Journal; kStorage E_OUTPUT_EXISTS (the output is there and no journal of it:
  // Start::kAnew replaces it, but only when the job is over; or a part that no journal knows),
  // E_OUTPUT_CHANGED (the output is shorter than its journal says, or gone).
  StreamedOutput(std::filesystem::path output, const Json& job, const StreamOptions& options);

  bool wants(const std::string& id, bool retry_failed) const {
    return journal_.wants(id, retry_failed);
  }
  // Adds the result. `fields` is an object with "path" and "caption", which is cleaned; the rest is
  // as the caller likes. Error kStorage; kGeneral E_OUTPUT_KEY if another item
  // of a WebDataset has this key or it cannot be one: nothing was written then.
  void add(const CaptionResult& result, const Json& fields);
  void fail(const std::string& id, const std::string& path, const ErrorInfo& info);
  void skip(const std::string& id);
  // Adds an item without a caption: `fields` has "path" and "repeats", the path of an earlier image.
  void repeat(const CaptionResult& result, const Json& fields);
  void note(const Json& record) { journal_.add(record); }  // of no item
  // Of a WebDataset. claim() before the caption is found: keeps the key for the item until add() or
  // release(); kLater when an item at work has it, Error kGeneral E_OUTPUT_KEY when another has it
  // for good or it cannot be one. keep(): under kSkip a sample with a caption goes into the output
  // as it is; false if it has none.
  Wanted claim(const std::string& key, const std::string& id);
  void release(const std::string& key, const std::string& id);
  bool keep(const CaptionResult& result);

  // Takes over an item of another output of the job: its record, and its bytes if it has any.
  void take_over(const Json& record, std::string_view bytes);

  // Syncs what was added and then the journal. Only items counted here may be called done.
  void commit();
  void commit_if_late();  // when the first that was added has waited long enough
  std::uint64_t committed() const { return committed_; }  // items of this run

  // Commits, closes the archive if it is one, renames. Does nothing if the job was over already.
  void finish();

  const Journal& journal() const { return journal_; }
  std::uint64_t cut_bytes() const { return cut_; }  // of output without a record, cut at the start

 private:
  void replay(const Json& record);
  void refuse(const char* code, std::string expected, std::string found) const;
  void go_on();
  void reopen();
  void open_part();
  CsvForm csv() const { return {options_.columns, options_.formula_safe}; }
  std::string prefix() const;  // the CSV header
  void check_owner(const CaptionResult& result) const;
  void put_line(const Json& fields);
  void note_sample(const CaptionResult& result, Json record);
  void commit_if_due();

  std::filesystem::path output_, part_;
  StreamOptions options_;
  // What the journal says.
  std::uint64_t end_ = 0;                  // of the last whole item in the output
  std::optional<std::uint64_t> closed_;    // length of the finished output
  std::optional<std::uint64_t> reopened_;  // its length when it was opened again
  SampleForm samples_;
  Places keys_;  // of a WebDataset
  Journal journal_;
  std::unique_ptr<AppendFile> file_;  // the part; null while the job is over
  std::uint64_t pending_ = 0, committed_ = 0, cut_ = 0;
  double first_pending_ = 0;
};

}  // namespace tessera
