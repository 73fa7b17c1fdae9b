// Opening: folders, job.json under a lock of its own, the shard's journal under the lock that
// lasts, temporaries of dead runs, files of done items.
#include "apps/batch/store.h"

#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "apps/captions/text_forms.h"
#include "apps/pipeline/sha256.h"
#include "engine/core/io.h"
#include "engine/core/publish.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kMaxPicture = std::size_t{1} << 30;
constexpr std::size_t kMostDifferences = 8;
constexpr double kLockSeconds = 10;  // others write job.json within milliseconds

// Held while job.json is read or made.
AppendFile lock_state(const fs::path& path) {
  const double give_up = monotonic_seconds() + kLockSeconds;
  while (true) {
    try {
      return AppendFile(path, AppendFile::Lock::kExclusive);
    } catch (const Error& error) {
      if (error.info().code != "E_IO_LOCKED" || monotonic_seconds() > give_up) throw;
    }
    ::usleep(10000);
  }
}

// Temporaries that nobody can be writing, because the caller holds the lock of their targets.
std::uint64_t remove_temporaries(const fs::path& folder,
                                 const std::function<bool(std::string_view)>& is_target) {
  std::uint64_t removed = 0;
  for (const fs::path& path : list_folder(folder)) {
    const std::string name = path.filename().string();
    const std::string_view target = target_of_temporary(name);
    if (target.empty() || !is_target(target)) continue;
    remove_durable(path);
    ++removed;
  }
  return removed;
}

void add_item_differences(const std::vector<JobItem>& was, std::span<const SettledItem> is,
                          std::vector<std::string>& out) {
  std::unordered_map<std::string, const JobItem*> now;
  for (const SettledItem& item : is) now.emplace(item.item.id, &item.item);
  for (const JobItem& item : was) {
    const auto found = now.find(item.id);
    if (found == now.end()) {
      out.push_back("item " + item.id + " is gone");
      continue;
    }
    const Json before = Json::parse(job_line(item)), after = Json::parse(job_line(*found->second));
    for (const std::string& change : json_differences(before, after, kMostDifferences)) {
      out.push_back("item " + item.id + ": " + change);
    }
    now.erase(found);
  }
  for (const SettledItem& item : is) {
    if (now.contains(item.item.id)) out.push_back("item " + item.item.id + " is new");
  }
}

}  // namespace

BatchStore::BatchStore(fs::path folder, std::span<const SettledItem> items, const Json& options,
                       const Json& model, const StoreOptions& store_options)
    : folder_(std::move(folder)),
      state_(folder_ / kStateFolder),
      items_(items),
      options_(store_options) {
  std::vector<const JobItem*> all;
  for (std::size_t i = 0; i < items.size(); ++i) {
    all.push_back(&items[i].item);
    if (shard_of(items[i].item.id, options_.shard.of) == options_.shard.index) {
      own_.emplace(items[i].item.id, i);
    }
  }
  const std::string text = items_text(std::move(all));
  const Json job = {{"schema", 1},
                    {"kind", "batch"},
                    {"shards", options_.shard.of},
                    {"items", {{"count", items.size()}, {"sha256", sha256_hex(text)}}},
                    {"options", options},
                    {"model", model}};
  make_folders_durable(state_);
  begin_job(job, text);
  const Json header = {{"batch", sha256_hex(json_line(job) + "\n")},
                       {"shard", options_.shard.index},
                       {"of", options_.shard.of}};
  journal_ = std::make_unique<Journal>(
      state_ / journal_name(options_.shard.index, options_.shard.of), header, options_.start,
      options_.sync,
      [this](const Json& fields) {
        ItemRecord record;
        const std::string id = record_of(fields, record);
        if (own_.contains(id)) records_[id] = std::move(record);
      },
      JournalKind::kBatch);
  sweep();
  check_done(options_.verify);
}

void BatchStore::begin_job(const Json& job, const std::string& items) {
  const AppendFile lock = lock_state(state_ / "lock");
  const std::string text = json_line(job) + "\n";
  remove_temporaries(state_, [](std::string_view target) {
    return target == "job.json" || target == "items.jsonl";
  });
  const bool there = file_type(state_ / "job.json") != FileType::kMissing;
  if (there && options_.start == Start::kResume) {
    const std::optional<BegunJob> begun = read_begun_job(folder_);
    if (begun->digest != sha256_hex(text)) refuse_changes(*begun, job);
    return;
  }
  // Begun anew: a job of other bytes, however many, makes place.
  if (there && InputFile(state_ / "job.json", ErrorKind::kUsage).size() == text.size() &&
      read_file(state_ / "job.json", text.size(), ErrorKind::kUsage) == text) {
    return;
  }
  // Without job.json the items mean nothing yet.
  if (there) remove_durable(state_ / "job.json");
  write_file_atomic(state_ / "items.jsonl", items);
  write_file_atomic(state_ / "job.json", text);
}

void BatchStore::refuse_changes(const BegunJob& begun, const Json& job) const {
  std::vector<std::string> changes =
      json_differences(Json::parse(begun.job), job, kMostDifferences);
  std::erase_if(changes, [](const std::string& change) { return change.starts_with("items."); });
  add_item_differences(begun.items, items_, changes);
  std::string list;
  for (std::size_t i = 0; i < std::min(changes.size(), kMostDifferences); ++i) {
    list += (list.empty() ? "" : "; ") + changes[i];
  }
  if (changes.size() > kMostDifferences) {
    list += "; and " + std::to_string(changes.size() - kMostDifferences) + " more";
  }
  throw Error({.kind = ErrorKind::kUsage,
               .code = "E_JOB_CHANGED",
               .file = (state_ / "job.json").string(),
               .expected = "the job that was begun here",
               .found = list,
               .hint = "--anew begins again, or choose another --output-dir"});
}

void BatchStore::sweep() {
  std::unordered_map<std::string, bool> targets;
  for (const auto& [id, index] : own_) {
    const std::string& name = items_[index].name;
    targets[name] = true;
    for (const std::string& ending : options_.beside) {
      targets[fs::path(name).stem().string() + ending] = true;
    }
  }
  swept_ = remove_temporaries(
      folder_, [&](std::string_view target) { return targets.contains(std::string(target)); });
}

std::string BatchStore::what_is_wrong(const RecordedFile& file, bool verify) const {
  const fs::path path = folder_ / file.name;
  if (file_type(path) != FileType::kFile) return file.name + " is gone";
  const std::uint64_t size = InputFile(path, ErrorKind::kStorage).size();
  if (size != file.bytes) {
    return file.name + " has " + std::to_string(size) + " bytes of " + std::to_string(file.bytes);
  }
  if (verify && sha256_hex(read_file_no_link(path, kMaxPicture)) != file.sha256) {
    return file.name + " has other bytes";
  }
  return {};
}

void BatchStore::check_done(bool verify) {
  for (auto record = records_.begin(); record != records_.end();) {
    std::string wrong;
    for (const RecordedFile& file : record->second.files) {
      if (wrong.empty()) wrong = what_is_wrong(file, verify);
    }
    if (wrong.empty()) {
      ++record;
      continue;
    }
    damaged_.emplace_back(record->first, wrong);
    record = records_.erase(record);
  }
  std::sort(damaged_.begin(), damaged_.end());
}

std::vector<std::size_t> BatchStore::wanted(bool retry_failed) const {
  std::vector<std::size_t> out;
  for (const auto& [id, index] : own_) {
    const ItemRecord* known = record(id);
    const bool failed = known != nullptr && known->state == ItemState::kFailed;
    if (known == nullptr || (failed && retry_failed)) out.push_back(index);
  }
  std::sort(out.begin(), out.end());
  return out;
}

const ItemRecord* BatchStore::record(const std::string& id) const {
  const auto found = records_.find(id);
  return found == records_.end() ? nullptr : &found->second;
}

BatchStore::Totals BatchStore::totals() const {
  Totals totals{.total = own_.size()};
  for (const auto& [id, record] : records_) {
    ++(record.state == ItemState::kDone ? totals.done : totals.failed);
  }
  return totals;
}

void BatchStore::publish(const OutputFile& file, const Ours& ours) {
  const fs::path path = folder_ / file.name;
  const auto write = [&](Publish mode) {
    try {
      return publish_file(path, file.bytes, mode, options_.sync);
    } catch (const Error& error) {
      // The pages of a failed sync may be marked clean: one more try, with another file.
      if (error.info().where != "sync") throw;
      return publish_file(path, file.bytes, mode, options_.sync);
    }
  };
  if (write(options_.overwrite ? Publish::kReplace : Publish::kNew)) return;
  const bool mine = file_type(path) == FileType::kFile && [&](const std::string& existing) {
    return existing == file.bytes || ours(file, existing);
  }(read_file_no_link(path, kMaxPicture));
  if (mine) {
    write(Publish::kReplace);  // even equal bytes: those that are there may not have been synced
    return;
  }
  throw Error({.kind = ErrorKind::kGeneral,
               .code = "E_OUTPUT_EXISTS",
               .file = path.string(),
               .expected = "no file of this name, or the picture of this item",
               .found = "another file",
               .hint = "--overwrite replaces it"});
}

ItemRecord BatchStore::commit(const SettledItem& item, std::span<const OutputFile> files,
                              double seconds, const Ours& ours) {
  expects(!files.empty() && own_.contains(item.item.id), "an item of this shard, with a picture");
  ItemRecord record{.state = ItemState::kDone, .seed = item.item.seed.value()};
  for (const OutputFile& file : files) {
    publish(file, ours);
    record.files.push_back({file.name, file.bytes.size(), sha256_hex(file.bytes)});
  }
  note_sync();
  journal_->add(record_fields(item.item.id, record, seconds));
  journal_->commit();
  records_[item.item.id] = record;
  return record;
}

// With the first record of the run: a run that finds nothing to do writes nothing.
void BatchStore::note_sync() {
  if (options_.sync == Sync::kOff && !std::exchange(sync_noted_, true)) {
    journal_->add({{"fsync", "off"}});
  }
}

void BatchStore::note_at_once(std::int64_t pictures) {
  journal_->add({{"at_once", pictures}});
  journal_->commit();
}

void BatchStore::fail(const SettledItem& item, const ErrorInfo& error) {
  expects(own_.contains(item.item.id), "an item of this shard");
  note_sync();
  journal_->add_failure(item.item.id, "", error);
  journal_->commit();
  ItemRecord& record = records_[item.item.id] = {};
  record.state = ItemState::kFailed;
}

}  // namespace tessera
