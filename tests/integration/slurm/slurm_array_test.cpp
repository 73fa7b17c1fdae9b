// A job array on a real Slurm, with the script that users are given: one task is requeued in its
// work, another is notified that its time is over, and what comes out is what one process generates.
#include "tests/integration/slurm/scale_out.h"
#include "tests/integration/slurm/slurm_cluster.h"

namespace tessera::slurm_array_test {
namespace {

constexpr int kTasks = 8;
constexpr int kItems = 1200;
// Eight tasks that begin neither at 0 nor at 1, in steps, four at once.
constexpr int kFirst = 5, kStep = 3;
constexpr const char* kArray = "--array=5-26:3%4";

class SlurmArray : public ScaleOutTest {
 protected:
  void SetUp() override {
    if (const std::string missing = SlurmCluster::missing(); !missing.empty()) {
      GTEST_SKIP() << "not installed: " << missing;
    }
    cluster_ = std::make_unique<SlurmCluster>(
        std::vector<std::filesystem::path>{folder_.path(), home_.path(), logs_.path()});
  }
  void TearDown() override {
    if (cluster_ && HasFailure()) std::printf("%s\n", cluster_->logs().c_str());
  }
  ProgramResult slurm(const std::string& program, const std::vector<std::string>& args) {
    return run_program(SlurmCluster::program(program), args,
                       {{"SLURM_CONF", cluster_->config().string()}, {"TESSERA", TESSERA_PROGRAM}});
  }
  // Submits the script and returns the job's number.
  std::string submit(const std::string& array, const std::string& job, const std::string& out,
                     const std::string& batch_size) {
    const ProgramResult result =
        slurm("sbatch", {"--parsable", array, "--cpus-per-task=1", "--output=" + out + "-%a.log",
                         std::string(TESSERA_SOURCE_DIR) + "/assets/scale-out/tessera-array.sbatch",
                         job, out, "-m", kModel, "--json", "--batch-size", batch_size});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out.substr(0, result.out.find_first_not_of("0123456789"));
  }
  // What Slurm says of each task of a job: ArrayTaskId -> name -> value.
  using Facts = std::map<std::string, std::string>;
  std::map<std::string, Facts> tasks_of(const std::string& job) {
    std::map<std::string, Facts> tasks;
    std::istringstream lines(slurm("scontrol", {"show", "job", "-o", job}).out);
    for (std::string line; std::getline(lines, line);) {
      Facts facts;
      std::istringstream words(line);
      for (std::string word; words >> word;) {
        const std::size_t equals = word.find('=');
        if (equals != std::string::npos) facts[word.substr(0, equals)] = word.substr(equals + 1);
      }
      tasks[facts["ArrayTaskId"]] = facts;
    }
    return tasks;
  }
  bool all_ended(const std::string& job) {
    const auto tasks = tasks_of(job);
    return !tasks.empty() && std::all_of(tasks.begin(), tasks.end(), [](const auto& task) {
      const std::string& state = task.second.at("JobState");
      return state == "COMPLETED" || state == "FAILED" || state == "CANCELLED" ||
             state == "TIMEOUT" || state == "NODE_FAIL";
    });
  }
  // Items of a shard of the job in "out", which has begun.
  std::size_t size_of(int shard) {
    const auto report = run({"batch", "status", "out", "--json"}).json_lines().at(0);
    return report["shards"].at(static_cast<std::size_t>(shard) - 1)["total"];
  }
  static std::string task_name(int shard) { return std::to_string(kFirst + (shard - 1) * kStep); }

  // Does something to the first task after `after` whose shard has generated some items but not all,
  // and which then stops before it has generated all. Returns the shard and its journal as it stands
  // between both lives.
  struct Interrupted {
    int shard = 0;
    std::string journal;
  };
  Interrupted interrupt(const std::string& job, int after,
                        const std::function<void(const std::string&)>& act) {
    for (int shard = after + 1; shard <= kTasks; ++shard) {
      const std::string journal = journal_of("out", shard, kTasks);
      const std::string task = job + "_" + task_name(shard);
      if (!wait_for(120, [&] { return lines_of(journal) >= 4; })) break;
      act(task);
      std::string state;
      EXPECT_TRUE(wait_for(120, [&] {
        state = tasks_of(task)[task_name(shard)]["JobState"];
        return state == "PENDING" || state == "COMPLETED";
      }));
      const std::string now = content(journal);
      if (state == "PENDING" && done_in(now).size() < size_of(shard)) {
        return {shard, now};
      }
      std::printf("shard %d was over too soon; the next one\n", shard);
    }
    return {};
  }

  // The task went on: its journal begins as it stood between both lives and names every item once,
  // and the lines of both lives in its log name none twice.
  void expect_went_on(const Interrupted& task) {
    const std::string journal = content(journal_of("out", task.shard, kTasks));
    EXPECT_EQ(journal.substr(0, task.journal.size()), task.journal);
    const std::vector<std::string> first = done_in(task.journal), all = done_in(journal);
    EXPECT_GE(first.size(), 3u);
    EXPECT_LT(first.size(), all.size());
    EXPECT_EQ(all.size(), size_of(task.shard));
    expect_once(all, "the journal");
    std::vector<std::vector<std::string>> lives;
    std::istringstream log(content("out-" + task_name(task.shard) + ".log"));
    for (std::string line; std::getline(log, line);) {
      if (line.find(", restart ") != std::string::npos) lives.emplace_back();
      if (line.starts_with("{"))
        lives.at(lives.size() - 1).push_back(nlohmann::ordered_json::parse(line)["id"]);
    }
    ASSERT_EQ(lives.size(), 2u) << "lives of shard " << task.shard;
    EXPECT_EQ(lives[0], first) << "told in the first life";
    EXPECT_EQ(lives[1], std::vector<std::string>(
                            all.begin() + static_cast<std::ptrdiff_t>(first.size()), all.end()))
        << "told in the second life";
    std::printf("shard %d: %zu items in its first life, %zu in its second\n", task.shard,
                first.size(), all.size() - first.size());
  }

  std::unique_ptr<SlurmCluster> cluster_;
};

TEST_F(SlurmArray, ARequeuedTaskGoesOnAndTheWholeIsThatOfOneProcess) {
  const std::string job_file = put_job(kItems);
  generate_whole(job_file);
  const std::string job = submit(kArray, job_file, "out", "1");
  const Interrupted requeued = interrupt(job, 0, [&](const std::string& task) {
    const ProgramResult result = slurm("scontrol", {"requeue", task});
    EXPECT_EQ(result.exit_code, 0) << result.err;
  });
  ASSERT_NE(requeued.shard, 0) << "no task could be requeued in its work";
  // What --signal=B:USR1@180 does when the time is nearly over.
  const Interrupted heard = interrupt(job, requeued.shard, [&](const std::string& task) {
    // scancel would ask again every few seconds, and signal the task's second life too.
    run_program("/usr/bin/timeout",
                {"1", SlurmCluster::program("scancel"), "--batch", "--signal=USR1", task},
                {{"SLURM_CONF", cluster_->config().string()}});
  });
  ASSERT_NE(heard.shard, 0) << "no task could be notified in its work";

  ASSERT_TRUE(wait_for(240, [&] { return all_ended(job); }));
  const auto tasks = tasks_of(job);
  EXPECT_EQ(tasks.size(), static_cast<std::size_t>(kTasks));
  for (int shard = 1; shard <= kTasks; ++shard) {
    const Facts& facts = tasks.at(task_name(shard));
    EXPECT_EQ(facts.at("JobState"), "COMPLETED") << shard;
    EXPECT_EQ(facts.at("ExitCode"), "0:0") << shard;
    const bool twice = shard == requeued.shard || shard == heard.shard;
    EXPECT_EQ(facts.at("Restarts"), twice ? "1" : "0") << shard;
    EXPECT_EQ(done_in(content(journal_of("out", shard, kTasks))).size(), size_of(shard));
  }
  expect_went_on(requeued);
  expect_went_on(heard);
  expect_whole("out");
}

TEST_F(SlurmArray, ListsWithGapsAndCancelledTasks) {
  const std::string job_file = put_job(kItems);
  // Slurm numbers the tasks of a list, but no task can know its place in it: all say so.
  const std::string gaps = submit("--array=2,4,6", job_file, "gaps", "1");
  // A cancelled task stops after its batch, which takes a while here, and does not come back.
  const std::string one = submit("--array=7", job_file, "out", "80");
  ASSERT_TRUE(wait_for(120, [&] { return lines_of(journal_of("out", 1, 1)) > 80; }));
  EXPECT_EQ(slurm("scancel", {one + "_7"}).exit_code, 0);
  ASSERT_TRUE(wait_for(120, [&] { return all_ended(one) && all_ended(gaps); }));
  for (const auto& [task, facts] : tasks_of(gaps)) {
    EXPECT_EQ(facts.at("JobState"), "FAILED") << task;
    EXPECT_EQ(facts.at("ExitCode"), "2:0") << task;
    EXPECT_NE(content("gaps-" + task + ".log").find("3 tasks from 2 to 6 in steps of 1"),
              std::string::npos);
  }
  EXPECT_FALSE(std::filesystem::exists(folder_ / "gaps"));
  EXPECT_EQ(tasks_of(one).at("7").at("JobState"), "CANCELLED");
  EXPECT_EQ(tasks_of(one).at("7").at("Restarts"), "0");
  EXPECT_NE(content("out-7.log").find("stopped; the same command goes on"), std::string::npos)
      << content("out-7.log");
  EXPECT_EQ(done_in(content(journal_of("out", 1, 1))).size(), images("out").size());
}

}  // namespace
}  // namespace tessera::slurm_array_test
