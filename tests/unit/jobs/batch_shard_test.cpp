// Shards from the environment of schedulers. The Slurm rows are what a Slurm 22.05 puts into the
// tasks of the array that they are named after.
#include "apps/jobs/shard.h"

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/core/error.h"

namespace tessera::batch_shard_test {
namespace {

using Variables = std::map<std::string, std::string>;

Shard shard_in(const std::string& text, const Variables& variables) {
  return shard_from(text, [&](const char* name) -> std::optional<std::string> {
    const auto at = variables.find(name);
    if (at == variables.end()) return std::nullopt;
    return at->second;
  });
}

// "3/8", or the error's code and what it found.
std::string heard(const std::string& text, const Variables& variables) {
  try {
    const Shard shard = shard_in(text, variables);
    return std::to_string(shard.index) + "/" + std::to_string(shard.of);
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), 2);
    EXPECT_EQ(error.info().where, "--shard");
    return error.info().code + " " + error.info().found;
  }
}

struct Array {
  std::string flag;  // sbatch --array
  std::vector<int> tasks;
  int least, most, step;
};

Variables task_of(const Array& array, int task) {
  return {{"SLURM_ARRAY_TASK_ID", std::to_string(task)},
          {"SLURM_ARRAY_TASK_MIN", std::to_string(array.least)},
          {"SLURM_ARRAY_TASK_MAX", std::to_string(array.most)},
          {"SLURM_ARRAY_TASK_STEP", std::to_string(array.step)},
          {"SLURM_ARRAY_TASK_COUNT", std::to_string(array.tasks.size())}};
}

TEST(BatchShard, EveryTaskOfAnArrayHasAShardOfItsOwn) {
  for (const Array& array :
       {Array{"0-3", {0, 1, 2, 3}, 0, 3, 1}, Array{"1-8%3", {1, 2, 3, 4, 5, 6, 7, 8}, 1, 8, 1},
        Array{"0-15:4", {0, 4, 8, 12}, 0, 12, 4}, Array{"5-19:5%2", {5, 10, 15}, 5, 15, 5},
        Array{"10", {10}, 10, 10, 1}, Array{"5,3,4", {3, 4, 5}, 3, 5, 1}}) {
    const std::string of = "/" + std::to_string(array.tasks.size());
    for (std::size_t i = 0; i < array.tasks.size(); ++i) {
      const Variables task = task_of(array, array.tasks[i]);
      EXPECT_EQ(heard("auto", task), std::to_string(i + 1) + of) << array.flag;
      EXPECT_EQ(heard("auto" + of, task), std::to_string(i + 1) + of) << array.flag;
    }
  }
}

// Task 2 of 2,4,6 would be 1/3, task 4 would be 3/3, task 6 would be 5/3, and nobody 2/3.
TEST(BatchShard, NoTaskOfAListWithGapsIsNumbered) {
  for (const Array& array : {Array{"2,4,6", {2, 4, 6}, 2, 6, 1}, Array{"3,5", {3, 5}, 3, 5, 1},
                             Array{"1-3,7-9", {1, 2, 3, 7, 8, 9}, 1, 9, 1}}) {
    for (const int task : array.tasks) {
      const std::string found = heard("auto", task_of(array, task));
      EXPECT_EQ(found.rfind("E_SHARD " + std::to_string(array.tasks.size()) + " tasks from ", 0),
                0u)
          << array.flag << ": " << found;
      EXPECT_EQ(found, heard("auto/8", task_of(array, task)));
    }
  }
}

// The tasks 4 to 6 of eight, submitted again with auto/8, are not the shards 1 to 3.
TEST(BatchShard, APartOfAnArrayIsNotCountedAnew) {
  const Array part{"4-6", {4, 5, 6}, 4, 6, 1};
  for (const int task : part.tasks)
    EXPECT_EQ(heard("auto/8", task_of(part, task)), "E_SHARD auto/8");
  EXPECT_EQ(heard("auto/8", {{"JOB_COMPLETION_INDEX", "2"}, {"JOB_COMPLETIONS", "4"}}),
            "E_SHARD auto/8");
  EXPECT_EQ(heard("auto/8", {{"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "4"}}),
            "E_SHARD auto/8");
}

TEST(BatchShard, OtherSchedulers) {
  EXPECT_EQ(heard("auto", {{"JOB_COMPLETION_INDEX", "2"}, {"JOB_COMPLETIONS", "4"}}), "3/4");
  EXPECT_EQ(heard("auto/4", {{"JOB_COMPLETION_INDEX", "0"}}), "1/4");
  EXPECT_EQ(heard("auto", {{"JOB_COMPLETION_INDEX", "0"}}), "E_SHARD auto");
  EXPECT_EQ(heard("auto", {{"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "4"}}), "4/4");
  EXPECT_EQ(heard("auto/4", {{"JOB_COMPLETION_INDEX", "4"}}), "E_SHARD 5/4");
}

TEST(BatchShard, BadEnvironmentsAndForms) {
  EXPECT_EQ(heard("auto", {}), "E_SHARD none of them");
  EXPECT_EQ(heard("auto/8", {}), "E_SHARD none of them");
  EXPECT_EQ(heard("auto/8", {{"SLURM_ARRAY_TASK_ID", "x"}}), "E_SHARD \"x\"");
  EXPECT_EQ(heard("auto/8", {{"SLURM_ARRAY_TASK_ID", "-1"}}), "E_SHARD \"-1\"");
  EXPECT_EQ(heard("auto/8", {{"JOB_COMPLETION_INDEX", "4294967295"}}), "E_SHARD 0/8");
  EXPECT_EQ(heard("auto/8", {{"SLURM_ARRAY_TASK_ID", "3"}, {"SLURM_ARRAY_TASK_MIN", "4"}}),
            "E_SHARD 3");
  EXPECT_EQ(heard("auto/8", {{"SLURM_ARRAY_TASK_ID", "3"}, {"SLURM_ARRAY_TASK_STEP", "0"}}),
            "E_SHARD 3");
  EXPECT_EQ(heard("auto", {{"SLURM_ARRAY_TASK_ID", "3"},
                          {"SLURM_ARRAY_TASK_MAX", "3"},
                          {"SLURM_ARRAY_TASK_COUNT", "0"}})
                .substr(0, 15),
            "E_SHARD 0 tasks");
  for (const char* text : {"", "/", "3", "0/8", "9/8", "3/0", "3/", "/8", "auto/", "auto/0",
                           "auto8", "3/8/2", "-1/8", " 3/8", "1/100000", "AUTO/8"}) {
    EXPECT_EQ(heard(text, {{"JOB_COMPLETION_INDEX", "2"}}).rfind("E_SHARD ", 0), 0u) << text;
  }
  EXPECT_EQ(heard("3/8", {{"SLURM_ARRAY_TASK_ID", "5"}}), "3/8") << "the flag decides";
  EXPECT_EQ(heard("99999/99999", {}), "99999/99999");
}

}  // namespace
}  // namespace tessera::batch_shard_test
