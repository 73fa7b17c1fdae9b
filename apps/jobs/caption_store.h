// Where the captions of a job go, as one interface: text files next to the images, or one file for
// all of them. What is done is in a journal either way.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/captions/inputs.h"
#include "apps/jobs/shard.h"
#include "apps/jobs/sidecar.h"
#include "apps/jobs/streamed_output.h"

namespace tessera {

class CaptionStore {
 public:
  virtual ~CaptionStore() = default;
  // What the item wants for itself; items that want the same must be in one shard.
  virtual std::string place_of(const CaptionItem& item) const = 0;
  // Whether a caption has to be found for the item; then its place is kept for it until add() or
  // fail(). Error kGeneral when it has no place.
  virtual Wanted wants(const CaptionItem& item) = 0;
  virtual const Journal& journal() const = 0;
  // `fields`: an object with "path" and "caption"; text files take `caption` alone. Error kStorage;
  // kGeneral for what fails this item alone.
  virtual void add(const CaptionItem& item, const Json& fields, const std::string& caption) = 0;
  virtual void fail(const CaptionItem& item, const ErrorInfo& error) = 0;
  // The item has no caption but "repeats" in `fields`, an earlier image's path. Errors as of add().
  virtual void repeat(const CaptionItem& item, const Json& fields) = 0;
  virtual void note(const Json& record) = 0;  // keeps a record of no item
  virtual void settle() {}    // to be called now and then: makes durable what has waited for long
  virtual void finish() = 0;  // the job is over
  virtual void stop() = 0;    // it is not; what is done stays done
};

struct CaptionStoreOptions {
  std::string output;  // empty = text files
  // Text files' journal stands in the folder of the first one that can be written.
  std::vector<std::filesystem::path> inputs;
  bool formula_safe = true;                 // of a CSV
  std::string extension = "txt";            // of text files and of captions in a WebDataset
  std::optional<ExistingCaption> existing;  // empty = as the output is used to
  Start start = Start::kResume;
  bool retry_failed = false;
  // A shard of several has an output and a journal of its own.
  Shard shard;
  Journal::Replay notes = {};  // hears the records of earlier runs
};

// Of a job that leaves out images that look alike; its column of a CSV.
inline constexpr const char* kSkipSimilarKey = "skip_similar";
inline constexpr const char* kRepeatsField = "repeats";
// The fields of a result that a CSV has, in order.
std::vector<std::string> caption_columns(const Json& job);

// `output` must have a form. Errors: those of SidecarOutput and StreamedOutput; kUsage
// E_JOB_CHANGED when the job was begun here in another number of shards.
std::unique_ptr<CaptionStore> open_caption_store(const CaptionStoreOptions& options,
                                                 const Json& job);

// "x-00002-of-00008.jsonl" of "x.jsonl"; the output itself for one shard of one.
std::filesystem::path shard_output(const std::filesystem::path& output, const Shard& shard);
// The shard in a name that shard_output() made of the output's name.
std::optional<Shard> shard_in_name(const std::string& name, const std::filesystem::path& output);

// "captions of text files": ".tessera-caption-HASH.journal", of a shard of several
// ".tessera-caption-HASH-00002-of-00008.journal".
struct TextJournalName {
  std::string hash;
  Shard shard;
  std::string text() const;
};
std::optional<TextJournalName> text_journal_name(const std::string& name);

}  // namespace tessera
