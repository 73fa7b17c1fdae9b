// What is known of a job's items: records from journals, how records of one item join, and the
// folder of a job as anybody may read it while it is at work.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apps/jobs/job_list.h"
#include "apps/jobs/journal.h"
#include "engine/core/json.h"

namespace tessera {

struct RecordedFile {
  std::string name;  // below the output folder
  std::uint64_t bytes = 0;
  std::string sha256;
  std::string xxh3;  // XXH3_64bits as 16 digits; empty in records of earlier versions
  // xxh3 says nothing that sha256 does not say.
  bool operator==(const RecordedFile& other) const {
    return name == other.name && bytes == other.bytes && sha256 == other.sha256;
  }
};

// The last word on one item.
struct ItemRecord {
  ItemState state = ItemState::kPending;  // kPending, kDone or kFailed
  std::vector<RecordedFile> files;        // kDone: files next to it first, the image last
  std::int64_t seed = 0;                  // kDone
  std::string error;                      // kFailed: one line of JSON
  std::int64_t tries = 1;                 // those that failed before, and this one
  // What the item is; not how often it took.
  bool operator==(const ItemRecord& other) const {
    return state == other.state && files == other.files && seed == other.seed &&
           error == other.error;
  }
};
using ItemRecords = std::map<std::string, ItemRecord>;  // by id; no entry = pending

// No record is longer, its end included.
inline constexpr std::size_t kMaxRecordLine = 4096;

// "files" and the rest of a journal record, and back. record_of() takes any journal record: the
// nlohmann exceptions of a field of another type leave it.
Json record_fields(const std::string& id, const ItemRecord& record, double seconds);
// The record of a failure. Texts are cut so that it keeps to kMaxRecordLine: "cut" is true then.
Json failed_fields(const std::string& id, const ErrorInfo& error, std::int64_t tries);
// Bytes of the line that a record of these fields becomes, at most.
std::size_t longest_line(const Json& fields);
// Returns the id, empty if the record speaks of no item.
std::string record_of(const Json& fields, ItemRecord& record);

// Joins two records of one item: done before failed before pending. Commutative, associative,
// idempotent. Error kGeneral, E_MERGE_CONFLICT, when both are done and their files differ.
ItemRecord merge_records(const std::string& id, const ItemRecord& a, const ItemRecord& b);
// The same over all items.
ItemRecords merge_records(const ItemRecords& a, const ItemRecords& b);

// A name below the output folder that a journal may name: printable, no path, no dot first.
bool is_plain_name(std::string_view name);

// A text next to an image in a line of JSON: that of ".txt" as "caption", that of ".METHOD.txt" as
// "METHOD" in "captions".
void put_caption(Json& line, const std::string& ending, const std::string& text);

// Names below OUT/.tessera.
inline constexpr const char* kStateFolder = ".tessera";
std::string journal_name(std::uint32_t shard, std::uint32_t shards);  // "shard-00003-of-00008.jnl"
std::string log_name(std::uint32_t shard, std::uint32_t shards);      // "shard-00003-of-00008.log"

// The job that was begun in a folder, as job.json and items.jsonl have it.
struct BegunJob {
  std::string job;     // JSON: options, model, shards, count and digest of the items
  std::string digest;  // SHA-256 of it
  std::uint32_t shards = 1;
  std::vector<JobItem> items;  // by id
};
// nullopt when the folder holds none. Error kUsage, E_JOB_STATE, when its files are damaged.
std::optional<BegunJob> read_begun_job(const std::filesystem::path& folder);
// Error kUsage, E_JOB_STATE, if the folder's items.jsonl is not this text.
void check_begun_items(const std::filesystem::path& folder, const std::string& items);
// The text of items.jsonl and what job.json says of it.
std::string items_text(std::vector<const JobItem*> items);

struct ShardReport {
  std::uint32_t shard = 0;
  bool begun = false;                             // its journal is there, and of this job
  std::uint64_t done = 0, failed = 0, total = 0;  // pending is the rest
  bool synced = true;                             // false when a run of it did without syncs
  std::int64_t at_once = 0;  // images, where memory did not last for more; 0 = it did
  // Whole records of its journal after damage: not among the figures above; the shard's next run
  // takes them over.
  std::uint64_t after_damage = 0;
  std::uint64_t standing_grids = 0;  // of videos that are not done
};
struct JobReport {
  BegunJob begun;
  ItemRecords records;
  std::map<std::string, std::int64_t> standing;  // grids of videos that are not done, by id
  std::vector<ShardReport> shards;
};
// Reads all journals of the job, those at work too. Errors as above; E_JOB_STATE if there is no
// job, or a journal of another kind in a shard's place.
JobReport read_job_report(const std::filesystem::path& folder);

}  // namespace tessera
