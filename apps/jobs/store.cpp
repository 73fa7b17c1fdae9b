// Opening: folders, job.json under a lock of its own, the shard's journal under the lock that
// lasts; and what is known of items. What is found on disk is recovery.cpp's, putting files down is
// placing.cpp's.
#include "apps/jobs/store.h"

#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "apps/captions/text_forms.h"
#include "apps/jobs/temporaries.h"
#include "apps/runtime/sha256.h"
#include "engine/core/io.h"
#include "engine/core/publish.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kMaxDifferences = 8;
constexpr double kLockSeconds = 60;  // others hold it while they write job.json and the items

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
    for (const std::string& change : json_differences(before, after, kMaxDifferences)) {
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
      options_(store_options),
      log_(state_ / log_name(options_.shard.index, options_.shard.of)) {
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
  check_record_size();
  make_folders_durable(state_);
  begin_job(job, text);
  const Json header = {{"batch", sha256_hex(json_line(job) + "\n")},
                       {"shard", options_.shard.index},
                       {"of", options_.shard.of}};
  journal_ = std::make_unique<Journal>(
      state_ / journal_name(options_.shard.index, options_.shard.of), header, options_.start,
      options_.sync, [this](const Json& fields) { replay(fields); }, JournalKind::kBatch);
  records_lost_ = records_lost_ || !journal_->mended().kept_as.empty();
  sweep();
  recognise_outputs();
  check_done(options_.verify);
}

void BatchStore::replay(const Json& fields) {
  if (fields.value("fsync", std::string()) == "off") unsynced_ = true;
  if (fields.contains("mended")) records_lost_ = true;
  if (fields.contains("recognised")) records_lost_ = false;
  intents_.take(fields);
  segments_.take(fields);
  ItemRecord record;
  const std::string id = record_of(fields, record);
  if (!own_.contains(id)) return;
  if (record.state == ItemState::kFailed) failed_[id] = std::max(failed_[id] + 1, record.tries);
  if (record.state == ItemState::kDone) failed_[id] = record.tries - 1;
  records_[id] = std::move(record);
}

// The longest names and the longest id in one record: an upper bound for all items.
void BatchStore::check_record_size() const {
  std::string id, name;
  std::size_t shown = 0;
  for (const auto& [own, index] : own_) {
    if (own.size() > id.size()) id = own;
    const std::size_t length = json_line(Json(items_[index].name)).size();
    if (length <= shown) continue;
    shown = length;
    name = items_[index].name;
  }
  ItemRecord record{.state = ItemState::kDone, .seed = kMaxJobSeed};
  record.tries = INT32_MAX;
  std::vector<IntendedFile> intended;
  const auto add = [&](const std::string& file) {
    const std::string sum(64, 'f');
    record.files.push_back({file, UINT32_MAX, sum, sum.substr(0, 16)});
    intended.push_back({file, sum, sum});
  };
  for (const std::string& ending : options_.next_to) add(fs::path(name).stem().string() + ending);
  add(name);
  const std::size_t longest = std::max(longest_line(record_fields(id, record, 1.0 / 3)),
                                       longest_line(intent_fields(id, intended)));
  if (longest <= kMaxRecordLine) return;
  throw Error({.kind = ErrorKind::kUsage,
               .code = "E_RECORD_SIZE",
               .file = folder_.string(),
               .expected = "names and captions of which a record of " +
                           std::to_string(kMaxRecordLine) + " bytes can speak",
               .found = std::to_string(longest) + " bytes for " + name,
               .hint = "a shorter --name or fewer captions of an image"});
}

// The shards of a large job start together: under the lock nothing is parsed.
void BatchStore::begin_job(const Json& job, const std::string& items) {
  const fs::path job_file = state_ / "job.json";
  const std::string text = json_line(job) + "\n";
  {
    const AppendFile lock = lock_state(state_ / "lock");
    remove_temporaries(state_, [](std::string_view target) {
      return target == "job.json" || target == "items.jsonl";
    });
    const bool there = file_type(job_file) != FileType::kMissing;
    // A job of other bytes, however many.
    const bool same = there && InputFile(job_file, ErrorKind::kUsage).size() == text.size() &&
                      read_file(job_file, text.size(), ErrorKind::kUsage) == text;
    if (!there || (options_.start == Start::kAnew && !same)) {
      // Without job.json the items mean nothing yet.
      if (there) remove_durable(job_file);
      write_file_atomic(state_ / "items.jsonl", items);
      write_file_atomic(job_file, text);
      return;
    }
    if (options_.start == Start::kAnew) return;
    if (same) {
      check_begun_items(folder_, items);
      return;
    }
  }
  const std::optional<BegunJob> begun = read_begun_job(folder_);
  if (begun) refuse_changes(*begun, job);
}

void BatchStore::refuse_changes(const BegunJob& begun, const Json& job) const {
  std::vector<std::string> changes =
      json_differences(Json::parse(begun.job), job, kMaxDifferences);
  std::erase_if(changes, [](const std::string& change) { return change.starts_with("items."); });
  add_item_differences(begun.items, items_, changes);
  std::string list;
  for (std::size_t i = 0; i < std::min(changes.size(), kMaxDifferences); ++i) {
    list += (list.empty() ? "" : "; ") + changes[i];
  }
  if (changes.size() > kMaxDifferences) {
    list += "; and " + std::to_string(changes.size() - kMaxDifferences) + " more";
  }
  throw Error({.kind = ErrorKind::kUsage,
               .code = "E_JOB_CHANGED",
               .file = (state_ / "job.json").string(),
               .expected = "the job that was begun here",
               .found = list,
               .hint = "--anew begins again, or choose another --output-dir"});
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

void BatchStore::note_at_once(std::int64_t images) {
  journal_->add({{"at_once", images}});
  journal_->commit();
}

void BatchStore::note_try(const SettledItem& item) { ++failed_[item.item.id]; }

void BatchStore::fail(const SettledItem& item, const ErrorInfo& error) {
  expects(own_.contains(item.item.id), "an item of this shard");
  ItemRecord failed{.state = ItemState::kFailed};
  failed.tries = ++failed_[item.item.id];
  const Json fields = failed_fields(item.item.id, error, failed.tries);
  if (fields.contains("cut")) log_.add(item.item.id, failed.tries, error);
  note_sync();
  journal_->add(fields);
  journal_->commit();
  failed.error = json_line(fields.at("error"));
  records_[item.item.id] = std::move(failed);
}

}  // namespace tessera
