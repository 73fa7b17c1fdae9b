// The results of a job's shards as one list, and images of several folders in one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "apps/jobs/records.h"

namespace tessera {

struct MergeReport {
  std::uint64_t total = 0, done = 0, failed = 0, copied = 0;
  std::filesystem::path results;      // the list
  std::vector<std::string> images;  // names of those that are done, by id
};

// Joins the records of `folders`, which hold the same job, by merge_records(); copies what `output`
// lacks of the images, comparing hashes; then writes output/results.jsonl: a line an item by id,
// {"id", "path", "sha256", "seed"} with "caption" where the image was described, or
// {"id", "error"}. Nothing of when, where or in how many shards
// gets into it. Errors: kGeneral E_MERGE_JOB (different jobs), E_MERGE_PENDING (items that nobody
// worked on), E_MERGE_CONFLICT, E_MERGE_FILE (an image is gone or other bytes), E_JOURNAL
// (damaged, with records after the damage); kStorage.
MergeReport merge_folders(std::span<const std::filesystem::path> folders,
                          const std::filesystem::path& output);

}  // namespace tessera
