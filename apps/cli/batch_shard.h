// Which part of a job a process takes: from --shard, or from what a scheduler puts into the
// environment of its tasks.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "apps/batch/store.h"

namespace tessera {

using Environment = std::function<std::optional<std::string>(const char* name)>;
Environment process_environment();

// "I/N" with I from 1; "auto" reads SLURM_ARRAY_TASK_ID (with _MIN, _MAX, _STEP and _COUNT),
// JOB_COMPLETION_INDEX (with JOB_COMPLETIONS) or OMPI_COMM_WORLD_RANK (with _SIZE); "auto/N" takes
// the index from there and the number from here. Error kUsage, E_SHARD: another form, no task,
// an array with uneven gaps, another N than the environment's, an index beyond N.
Shard shard_from(const std::string& text, const Environment& environment);

}  // namespace tessera
