// Where the images of a job go, so that no end of the process or of the power loses or doubles
// one. Order of an item: where it has more than an image, one record of what is about to be put
// where, sync; its files one by one (temporary next to, sync, rename that replaces nobody,
// sync of the folder), the image last; then one record in the shard's journal, sync; only then is
// the item called done. What a run finds is therefore: a record and the files it names, or files
// without a record, which are generated again and turn out equal.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "apps/jobs/failure_log.h"
#include "apps/jobs/intents.h"
#include "apps/jobs/journal.h"
#include "apps/jobs/records.h"
#include "apps/jobs/segments.h"
#include "apps/jobs/settle.h"
#include "apps/jobs/shard.h"

namespace tessera {

struct OutputFile {
  std::string name;
  std::string bytes;
};

struct StoreOptions {
  Shard shard;
  Start start = Start::kResume;
  bool overwrite = false;  // images of strangers too
  bool verify = false;     // hash what is done, next to its length
  Sync sync = Sync::kOn;   // of images and records; off is recorded, durably
  // Endings of files next to an image or video, put after its stem.
  std::vector<std::string> next_to = {".json"};
  // The files of an item as they stand in the folder, the image last, if they prove by themselves
  // that they are whole and of this item; else none. Asked when records were lost.
  std::function<std::vector<OutputFile>(const SettledItem& item,
                                        const std::filesystem::path& folder)>
      recognise;
};

class BatchStore {
 public:
  // True when the bytes of a file that stands where ours belongs were made for the same item.
  using Ours = std::function<bool(const OutputFile& file, std::string_view existing)>;

  // `options` and `model` are what makes a job another job next to its items. Errors: kStorage
  // (E_IO_WRITE; E_IO_LOCKED when another process has the shard), kUsage (E_JOB_CHANGED with up to
  // 8 differences; E_JOB_STATE, E_JOURNAL for damaged or foreign files;
  // E_RECORD_SIZE when names and ids are too long for a record).
  BatchStore(std::filesystem::path folder, std::span<const SettledItem> items, const Json& options,
             const Json& model, const StoreOptions& store_options);

  // Indices into `items` that this shard has to generate now, in their order.
  std::vector<std::size_t> wanted(bool retry_failed) const;

  // Makes the files durable and the item done. `files`: the image last. Error kStorage; kGeneral,
  // E_OUTPUT_EXISTS, when a stranger's file, or one that cannot be read, has one of the names and
  // must not be replaced: all names are looked at before the first is taken, so the item is as
  // before, but for files that came in between. Returns the record.
  ItemRecord commit(const SettledItem& item, std::span<const OutputFile> files, double seconds,
                    const Ours& ours);
  void fail(const SettledItem& item, const ErrorInfo& error);

  // A video in work. Makes grids [first, first + grids) durable: the file of their codes, then a
  // record of it; they follow those that stand. Error kStorage.
  void commit_segment(const SettledItem& item, std::int64_t first, std::int64_t grids,
                      std::int64_t passes, std::span<const std::int32_t> codes);
  // The grids that stand of it, of so many codes each, which are below `codes`; those after a
  // segment whose file is gone or damaged do not.
  StandingVideo standing_video(const SettledItem& item, std::size_t grid_codes, std::int64_t codes);
  // Where it can be put together: no other run takes that name, and what is left there goes.
  std::filesystem::path video_draft(const SettledItem& item) const;

  // The item failed and is about to be tried again: it counts in the "try" of its record.
  void note_try(const SettledItem& item);
  // Records that from here on so many images at once had to do, because memory did not last.
  void note_at_once(std::int64_t images);

  struct Totals {
    std::uint64_t total = 0, done = 0, failed = 0;  // of this shard; pending is the rest
  };
  Totals totals() const;

  const ItemRecord* record(const std::string& id) const;  // nullptr = pending
  std::uint64_t cut_bytes() const { return journal_->cut_bytes(); }
  // Items that were done and whose files are not as they were: id and what is wrong. Pending again.
  const std::vector<std::pair<std::string, std::string>>& damaged() const { return damaged_; }
  std::uint64_t temporaries_removed() const { return swept_; }
  const Journal::Mend& mended() const { return journal_->mended(); }
  // Items whose records were lost and whose files were proven to be theirs.
  std::uint64_t recognised() const { return recognised_; }

 private:
  // What has the name of a file that is about to be put down.
  struct Standing {
    bool there = false;
    std::string sum;  // sha256; empty if it is no file that can be read
  };

  void check_record_size() const;
  void begin_job(const Json& job, const std::string& items);
  void refuse_changes(const BegunJob& begun, const Json& job) const;
  void replay(const Json& fields);

  // video_store.cpp
  std::optional<std::vector<std::int32_t>> segment_codes(const VideoSegment& segment,
                                                         std::size_t grid_codes,
                                                         std::int64_t codes) const;
  void drop_segments(const std::string& id);
  void sweep_segments();

  // recovery.cpp
  void sweep();
  void recognise_outputs();
  std::vector<OutputFile> intended_files(const SettledItem& item) const;
  void check_done(bool verify);
  std::string what_is_wrong(const RecordedFile& file, bool verify) const;

  // placing.cpp
  Standing look(const SettledItem& item, const OutputFile& file, const Ours& ours) const;
  Standing look_at(const SettledItem& item, const OutputFile& file, const Ours& ours) const;
  void announce(const SettledItem& item, std::span<const OutputFile> files,
                std::span<const Standing> standing);
  bool write(const OutputFile& file, Publish mode) const;
  bool publish_twice(const std::filesystem::path& path, std::string_view bytes, Publish mode) const;
  void note_sync();

  std::filesystem::path folder_, state_;
  std::span<const SettledItem> items_;
  StoreOptions options_;
  std::unordered_map<std::string, std::size_t> own_;  // items of this shard: id -> index
  std::unique_ptr<Journal> journal_;
  std::unordered_map<std::string, ItemRecord> records_;
  std::unordered_map<std::string, ItemRecord> was_;       // records of damaged items
  std::unordered_map<std::string, std::int64_t> failed_;  // tries that failed, by id
  Intents intents_;
  Segments segments_;
  FailureLog log_;
  std::vector<std::pair<std::string, std::string>> damaged_;
  std::uint64_t swept_ = 0, recognised_ = 0;
  bool sync_noted_ = false;
  bool records_lost_ = false;  // the journal was mended, and outputs were not looked at since
  bool unsynced_ = false;      // a run before this one did without syncs
};

}  // namespace tessera
