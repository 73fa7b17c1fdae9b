// What became of captioning jobs, as their journals say it: for whoever asks while they are at
// work, and for merging. Nothing is locked or changed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "apps/jobs/journal.h"
#include "apps/jobs/shard.h"
#include "engine/core/json.h"

namespace tessera {

// The last word on one item.
struct CaptionRecord {
  ItemState state = ItemState::kPending;  // not kPending
  std::shared_ptr<const Json> fields;     // the record, without number and checksums
  // In an output in one file: the bytes of the item, [begin, end).
  std::uint64_t begin = 0, end = 0;
};

struct CaptionShard {
  Shard shard;
  std::filesystem::path journal;
  std::filesystem::path output;     // empty where texts stand next to images
  std::shared_ptr<const Json> job;  // without the shard
  bool begun = false;               // a journal is there, with a header
  bool over = false;                // nothing is left but what failed
  std::uint64_t done = 0, skipped = 0, failed = 0, repeats = 0;
  std::uint64_t size = 0;                        // of the closed output
  std::uint64_t after_damage = 0;               // records that count no more
  std::map<std::string, CaptionRecord> records;  // by id
};

// One job in all its shards.
struct CaptionReport {
  std::filesystem::path output;      // as it was asked for; empty where texts stand next to images
  std::string hash;                  // of a job whose texts stand next to images
  std::vector<CaptionShard> shards;  // each number once, in order
};

// The jobs of an output (x.jsonl, x.csv, x.tar: the output itself or its shards), or of text files
// in a folder, one for each job that was begun there. Errors: kUsage E_JOB_STATE when there is
// none; E_JOURNAL for a journal of another kind; kStorage.
std::vector<CaptionReport> read_caption_reports(const std::filesystem::path& place);
// Fills what the shard's journal says; nothing when it is not there. `first`: where items begin in
// the output.
void read_caption_shard(CaptionShard& shard, std::uint64_t first = 0);

}  // namespace tessera
