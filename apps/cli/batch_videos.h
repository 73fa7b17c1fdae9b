// `tessera batch` with items of kind video.
#pragma once

#include "apps/cli/batch_job.h"

namespace tessera {

// Generates the videos of the job that are not done, or says what that would take. Returns the exit
// code. Error kUsage for flags that videos have no use for.
int generate_video_job(const Session& session, const BatchFlags& flags, BatchJob& job,
                   const Shard& shard);

}  // namespace tessera
