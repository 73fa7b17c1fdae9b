// The reports of `tessera batch` that paint nothing: status, merge, what a run would take, and the
// sheet of finished pictures.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "apps/batch/settle.h"
#include "apps/batch/store.h"
#include "apps/cli/session.h"
#include "apps/pipeline/generate_pipeline.h"

namespace tessera {

// Exit codes: 0 all done, 3 some failed, 1 items are pending.
int batch_status(const Session& session, const std::filesystem::path& folder);
// 0 all done, 3 some failed. `output` empty = the first folder, which must be the only one.
int batch_merge(const Session& session, const std::vector<std::filesystem::path>& folders,
                const std::filesystem::path& output);

struct DryRun {
  std::size_t items = 0, wanted = 0;  // of this shard
  std::uint64_t memory_bytes = 0;
  std::uint64_t captioner_bytes = 0;  // part of it; 0 = no captions
  std::uint64_t weight_bytes = 0;     // read for every pass
  std::int64_t tokens = 0;            // of a picture
  std::int64_t batch_size = 1;
  int threads = 0;
};
// Prints count, memory and a lower bound of the time: every token's pass reads the weights once for
// the batch, at the rate measured now.
int print_dry_run(const Session& session, const DryRun& run);

// The pictures of done items in job order, made smaller by whole steps until the sheet is at most
// 8192 pixels a side. Error kStorage, kGeneral for a file that is no picture of ours.
void write_batch_sheet(const std::filesystem::path& folder, const std::string& name,
                       std::span<const SettledItem> items, const BatchStore& store);

}  // namespace tessera
