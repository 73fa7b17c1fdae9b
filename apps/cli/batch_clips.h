// `tessera batch` with items of kind video.
#pragma once

#include "apps/cli/batch_job.h"

namespace tessera {

// Paints the clips of the job that are not done, or says what that would take. Returns the exit
// code. Error kUsage for flags that clips have no use for.
int paint_clip_job(const Session& session, const BatchFlags& flags, BatchJob& job,
                   const Shard& shard);

}  // namespace tessera
