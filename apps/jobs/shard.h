// Which part of a job a process takes: from --shard, or from what a scheduler puts into the
// environment of its tasks.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace tessera {

struct Shard {
  std::uint32_t index = 1, of = 1;  // index from 1
};

// Which of `shards` shards has the item of that id, from 1.
std::uint32_t shard_of(std::string_view id, std::uint32_t shards);
// 64 bits that follow from an id.
std::uint64_t id_number(std::string_view id);

using Environment = std::function<std::optional<std::string>(const char* name)>;
Environment process_environment();

// "I/N" with I from 1; "auto" reads SLURM_ARRAY_TASK_ID (with _MIN, _MAX, _STEP and _COUNT),
// JOB_COMPLETION_INDEX (with JOB_COMPLETIONS) or OMPI_COMM_WORLD_RANK (with _SIZE); "auto/N" takes
// the index from there and the number from here. Error kUsage, E_SHARD: another form, no task,
// an array with uneven gaps, another N than the environment's, an index beyond N.
Shard shard_from(const std::string& text, const Environment& environment);

}  // namespace tessera
