// What `tessera batch` does alike for images and for videos: items out of the job file, the store
// opened, its end told.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "apps/cli/batch_flags.h"
#include "apps/cli/session.h"
#include "apps/jobs/image_task.h"
#include "apps/jobs/store.h"

namespace tessera {

// Error kUsage, E_FLAG_VALUE.
[[noreturn]] void refuse_flag(const char* where, std::string expected, std::string found);
// All of them are seen; the last one ends the program.
void stop_at(const Session& session, const std::vector<ErrorInfo>& errors);

struct BatchJob {
  std::filesystem::path file;
  std::string name = {};  // the template of output names
  bool videos = false;
  std::vector<SettledItem> items = {};
};
// Reads, checks and settles the job file, and checks the sheet's name against it.
BatchJob read_batch_job(const Session& session, const BatchFlags& flags, const Shard& shard);

GenerateOptions pipeline_options(const BatchFlags& flags);
Shard shard_of_call(const BatchFlags& flags);
StoreOptions store_options(const BatchFlags& flags, const Shard& shard,
                           const std::vector<std::string>& endings);
// What makes the job another one next to its items and its model. Only what is asked for has an
// entry, so that older jobs stay the same ones.
Json job_options(const BatchFlags& flags, const BatchJob& job);

void tell_what_was_found(const Session& session, const BatchStore& store);
// What became of the job; writes the sheet. Returns the exit code.
int end_job(const Session& session, const BatchFlags& flags, std::span<const SettledItem> items,
            const BatchStore& store, JobEnd end);

}  // namespace tessera
