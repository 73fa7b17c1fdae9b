// Captions as text files next to the images ("a.jpg" -> "a.txt"), under a journal. Each file is
// announced in the journal, with the hash of what was there and of what will be, before it is
// renamed into place: so a run that was killed never appends a caption twice.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "apps/captions/existing_caption.h"
#include "apps/captions/inputs.h"
#include "apps/jobs/journal.h"
#include "apps/jobs/places.h"

namespace tessera {

struct SidecarOptions {
  ExistingCaption existing = ExistingCaption::kSkip;
  std::string extension = "txt";  // letters, digits, '_', '-' and '.', not beginning with a dot
  Start start = Start::kResume;
  Sync sync = Sync::kOn;  // of the journal; text files are always synced
  Journal::Replay notes;  // hears the records of earlier runs, too
};

class SidecarOutput {
 public:
  static constexpr std::size_t kMaxTextBytes = std::size_t{1} << 20;

  // Errors: those of Journal and of check_caption_extension().
  SidecarOutput(const std::filesystem::path& journal, const Json& job,
                const SidecarOptions& options);

  // Whether a caption has to be found for the item; if its file is there under kSkip, it is
  // recorded as skipped. First settles what a killed run announced for it: with the new text it is
  // done, with the old text pending, with any other it fails (E_SIDECAR_CHANGED). A journal may be
  // anybody's, so only the item's own file is looked at, and a caption whose file is gone is wanted
  // again. kLater: another image at work has this file. Error kGeneral: E_SIDECAR_PLACE (a
  // image inside a shard has no folder), E_SIDECAR_SHARED (another image of the same name has
  // this file), E_SIDECAR_LINK.
  Wanted wants(const CaptionItem& item, bool retry_failed);
  // Stores the caption (cleaned) and records it. Error kStorage; kGeneral E_SIDECAR_TEXT if the
  // text to join is not UTF-8 or too long, E_IO_PLACE if nothing can be written next to the image.
  void write(const CaptionItem& item, std::string_view caption);
  void fail(const CaptionItem& item, const ErrorInfo& info);
  // The item has no text: it repeats the image of that path.
  void repeat(const CaptionItem& item, const std::string& path);
  void note(const Json& record) { journal_.add(record); }  // of no item
  void commit() { journal_.commit(); }  // call before the end; the records of the last items
  // The same at the end of the job, which is recorded: {"ev": "over"}.
  void finish();

  std::filesystem::path path_of(const CaptionItem& item) const;
  const Journal& journal() const { return journal_; }

 private:
  struct Intent {
    std::string file, old_hash, new_hash;
  };
  void replay(const Json& record);
  void settle(const std::string& id, const std::string& file);
  void record(const char* state, const std::string& id, const std::string& file);

  SidecarOptions options_;
  std::map<std::string, Intent> intents_;  // announced, not yet settled
  Places owners_;                          // of files
  bool over_ = false;                      // the last record says so
  Journal journal_;
};

}  // namespace tessera
