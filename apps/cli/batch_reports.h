// The reports of `tessera batch` that generate nothing: status, merge, what a run would take, and the
// sheet of finished images.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "apps/cli/session.h"
#include "apps/jobs/settle.h"
#include "apps/jobs/store.h"
#include "apps/runtime/generate_request.h"

namespace tessera {

// Exit codes: 0 all done, 3 some failed, 1 items are pending.
int batch_status(const Session& session, const std::filesystem::path& folder);
// 0 all done, 3 some failed. `output` empty = the first folder, which must be the only one.
// `sheet`: the name of a sheet of all images by id, or empty.
int batch_merge(const Session& session, const std::vector<std::filesystem::path>& folders,
                const std::filesystem::path& output, const std::string& sheet, bool overwrite);

// What describing the images reads.
struct DryCaptions {
  std::uint64_t look_bytes = 0;  // weights of the image encoder
  std::uint64_t pass_bytes = 0;  // weights of the language model
  std::int64_t methods = 0;      // texts of an image; 0 = no captions
  std::int64_t max_tokens = 0;  // of a text
};

struct DryRun {
  std::size_t items = 0, wanted = 0;  // of this shard
  std::uint64_t memory_bytes = 0;
  std::uint64_t captioner_bytes = 0;  // part of it; 0 = no captions
  std::uint64_t weight_bytes = 0;     // read for every pass
  std::int64_t tokens = 0;            // of an image
  std::int64_t batch_size = 1;
  int threads = 0;
  DryCaptions captions;
};
// Prints count, memory and a lower bound of the time for generating: every token's pass reads the
// weights once for the batch, at the rate measured now. For captions next to it: from one pass a
// text to one for each of its most tokens.
int print_dry_run(const Session& session, const DryRun& run);

struct VideoDryRun {
  std::size_t items = 0, wanted = 0;  // of this shard
  std::uint64_t memory_bytes = 0;
  std::uint64_t weight_bytes = 0;  // read for every pass
  std::int64_t passes = 0;         // of plain decoding, for all that do not stand yet
  int threads = 0;
};
// The same for videos, generated one after the other.
int print_video_dry_run(const Session& session, const VideoDryRun& run);

}  // namespace tessera
