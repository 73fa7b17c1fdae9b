// The shards of a captioning job as the job that one process would have left: one output in the
// order of the items' ids, or one journal of text files; then the journals that are not needed go.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "apps/jobs/caption_report.h"

namespace tessera {

struct CaptionMerge {
  std::filesystem::path path;  // of the output, or the folder
  std::uint64_t done = 0, skipped = 0, failed = 0, repeats = 0;
};

// Joins shards that stand in one place or several into `output`, with a journal next to it: a call
// without --shard goes on from there. What is merged already is not written again. Errors: kGeneral
// E_MERGE_JOB (different jobs), E_MERGE_PENDING (a shard that is not over), E_MERGE_CONFLICT (an
// item that is done in two shards); kUsage and kStorage as StreamedOutput's.
CaptionMerge merge_outputs(std::span<const CaptionReport> reports,
                           const std::filesystem::path& output);

// Joins the journals of shards whose texts stand in the folder, and removes what is not needed: all
// of them when nothing failed and nothing was added to texts. Errors as above.
CaptionMerge merge_texts(const CaptionReport& report, const std::filesystem::path& folder);

}  // namespace tessera
