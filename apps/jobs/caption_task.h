// The captions of a job: items through the task "describe" as it has room for them, texts in the
// order in which they end into the store.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "apps/jobs/caption_items.h"
#include "apps/jobs/video_captions.h"
#include "apps/runtime/describe_task.h"
#include "engine/core/json.h"

namespace tessera {

// A caption as JSON lines have it: path, caption, tokens, passes, visual_tokens, kept_tokens,
// prune, times, sizes and what else is known. `prune`: the method, empty for none. `seed`: of what
// was sampled.
Json caption_fields(const Caption& caption, const std::string& path, const std::string& prune,
                    std::optional<std::uint64_t> seed);

struct CaptionJobOptions {
  CaptionItemOptions items;
  std::string prune;  // method, empty for none
  std::string prompt;
  std::optional<std::string> negative_prompt;  // under guidance, see DescribeRequest
  std::optional<std::uint64_t> seed;  // of what is sampled
  VideoSettings videos;
};

struct CaptionJobEnd {
  JobEnd end = JobEnd::kOver;
  std::uint64_t done = 0, failed = 0, skipped = 0, failed_before = 0, repeats = 0;
  std::int64_t visual_tokens = 0, kept_tokens = 0;
};

// `describe` is a task of the runtime. Ends as JobRun::run(), and closes the store: as over, or so
// that the next run goes on. When nobody reads stdout any more, that error leaves it so, too.
CaptionJobEnd write_captions(Runtime& runtime, DescribeTask& describe, CaptionInputs& inputs,
                             CaptionStore& store, const CaptionJobOptions& options,
                             CaptionJobListener& listener);

}  // namespace tessera
