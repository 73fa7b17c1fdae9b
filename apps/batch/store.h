// Where the pictures of a job go, so that no end of the process or of the power loses or doubles
// one. Order of an item: its files one by one (temporary beside, sync, rename that replaces nobody,
// sync of the folder), the picture last; then one record in the shard's journal, sync; only then is
// the item called done. What a run finds is therefore: a record and the files it names, or files
// without a record, which are painted again and turn out equal.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "apps/batch/records.h"
#include "apps/batch/settle.h"
#include "apps/captions/journal.h"

namespace tessera {

struct Shard {
  std::uint32_t index = 1, of = 1;  // index from 1
};

struct StoreOptions {
  Shard shard;
  Start start = Start::kResume;
  bool overwrite = false;  // pictures of strangers too
  bool verify = false;     // hash what is done, beside its length
  Sync sync = Sync::kOn;   // of pictures and records; off is recorded
  // Endings of files beside a picture, put after its stem.
  std::vector<std::string> beside = {".json"};
};

struct OutputFile {
  std::string name;
  std::string bytes;
};

class BatchStore {
 public:
  // True when the bytes of a file that stands where ours belongs were made for the same item.
  using Ours = std::function<bool(const OutputFile& file, std::string_view existing)>;

  // `options` and `model` are what makes a job another job beside its items. Errors: kStorage
  // (E_IO_WRITE; E_IO_LOCKED when another process has the shard), kUsage (E_JOB_CHANGED with up to
  // 8 differences; E_JOB_STATE, E_JOURNAL for damaged or foreign files).
  BatchStore(std::filesystem::path folder, std::span<const SettledItem> items, const Json& options,
             const Json& model, const StoreOptions& store_options);

  // Indices into `items` that this shard has to paint now, in their order.
  std::vector<std::size_t> wanted(bool retry_failed) const;

  // Makes the files durable and the item done. `files`: the picture last. Error kStorage; kGeneral,
  // E_OUTPUT_EXISTS, when a stranger's file has one of the names and must not be replaced: the item
  // is as before then. Returns the record.
  ItemRecord commit(const SettledItem& item, std::span<const OutputFile> files, double seconds,
                    const Ours& ours);
  void fail(const SettledItem& item, const ErrorInfo& error);
  // Records that from here on so many pictures at once had to do, because memory did not last.
  void note_at_once(std::int64_t pictures);

  struct Totals {
    std::uint64_t total = 0, done = 0, failed = 0;  // of this shard; pending is the rest
  };
  Totals totals() const;

  const ItemRecord* record(const std::string& id) const;  // nullptr = pending
  std::uint64_t cut_bytes() const { return journal_->cut_bytes(); }
  // Items that were done and whose files are not as they were: id and what is wrong. Pending again.
  const std::vector<std::pair<std::string, std::string>>& damaged() const { return damaged_; }
  std::uint64_t temporaries_removed() const { return swept_; }

 private:
  void begin_job(const Json& job, const std::string& items);
  void refuse_changes(const BegunJob& begun, const Json& job) const;
  void sweep();
  void check_done(bool verify);
  std::string what_is_wrong(const RecordedFile& file, bool verify) const;
  void publish(const OutputFile& file, const Ours& ours);
  void note_sync();

  std::filesystem::path folder_, state_;
  std::span<const SettledItem> items_;
  StoreOptions options_;
  std::unordered_map<std::string, std::size_t> own_;  // items of this shard: id -> index
  std::unique_ptr<Journal> journal_;
  std::unordered_map<std::string, ItemRecord> records_;
  std::vector<std::pair<std::string, std::string>> damaged_;
  std::uint64_t swept_ = 0;
  bool sync_noted_ = false;
};

}  // namespace tessera
