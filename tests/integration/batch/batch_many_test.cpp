// Several processes that are given one shard at the same time: one of them works, no item is done
// twice, and whoever comes too late finds nothing to do.
#include <fcntl.h>

#include "tests/integration/batch/batch_program.h"

namespace tessera::batch_many_test {
namespace {

class BatchMany : public BatchTest {
 protected:
  pid_t begin(const std::string& job, const std::string& out, int number) {
    std::vector<std::string> args = words(job, out, {"--json"});
    args.insert(args.begin(), TESSERA_PROGRAM);
    const std::string log = (logs_ / ("out" + std::to_string(number))).string();
    const pid_t child = fork();
    if (child != 0) return child;
    dup2(open(log.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600), 1);
    dup2(open("/dev/null", O_WRONLY), 2);
    if (chdir(folder_.path().c_str()) != 0) _exit(99);
    std::vector<char*> argv;
    for (std::string& arg : args) argv.push_back(arg.data());
    argv.push_back(nullptr);
    execv(argv[0], argv.data());
    _exit(98);
  }
};

TEST_F(BatchMany, NoItemIsDoneTwice) {
  constexpr std::size_t kItems = 8;
  const std::string job = put_job(kItems);
  ASSERT_EQ(batch(job, "truth").exit_code, 0);
  const auto truth = images("truth");
  int processes = 0, refused = 0, twice = 0;
  for (const int many : {2, 2, 2, 8, 8}) {
    std::filesystem::remove_all(folder_ / "out");
    std::vector<pid_t> children;
    for (int i = 0; i < many; ++i) children.push_back(begin(job, "out", i));
    std::map<std::string, int> heard;
    for (int i = 0; i < many; ++i) {
      int status = 0;
      waitpid(children[static_cast<std::size_t>(i)], &status, 0);
      ASSERT_TRUE(WIFEXITED(status));
      const int code = WEXITSTATUS(status);
      ASSERT_TRUE(code == 0 || code == 6) << code;
      ++processes;
      if (code == 6) ++refused;
      std::istringstream in(get_file(logs_ / ("out" + std::to_string(i))));
      for (std::string line; std::getline(in, line);) {
        const auto heard_line = nlohmann::ordered_json::parse(line);
        if (heard_line.contains("id")) ++heard[heard_line["id"]];
      }
    }
    EXPECT_EQ(heard.size(), kItems);
    for (const auto& [id, times] : heard) twice += times > 1 ? 1 : 0;
    EXPECT_EQ(lines_of("out/.tessera/shard-00001-of-00001.jnl"), kItems + 1) << "one record each";
    EXPECT_EQ(images("out"), truth);
  }
  std::printf("%d processes, %d refused, %d items done twice\n", processes, refused, twice);
  EXPECT_EQ(twice, 0);
  EXPECT_GT(refused, 0) << "some met";
}

// The number of a process among others, as schedulers and launchers tell it.
TEST_F(BatchMany, PlacesThatLaunchersGive) {
  const std::string job = put_job(24);
  const auto items = [&](const std::string& shard,
                         const std::map<std::string, std::string>& extra) {
    const ProgramResult dry =
        run(words(job, "out", {"--dry-run", "--json", "--shard", shard}), extra);
    EXPECT_EQ(dry.exit_code, 0) << dry.err;
    return dry.exit_code == 0 ? dry.json_lines().at(0)["items"].get<int>() : -1;
  };
  using Names = std::pair<const char*, const char*>;
  for (const auto& [rank, size] :
       {Names{"JOB_COMPLETION_INDEX", "JOB_COMPLETIONS"},
        Names{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}, Names{"PMI_RANK", "PMI_SIZE"}}) {
    int sum = 0;
    for (int i = 0; i < 3; ++i) {
      const int here = items("auto", {{rank, std::to_string(i)}, {size, "3"}});
      EXPECT_EQ(here, items(std::to_string(i + 1) + "/3", {})) << rank << " " << i;
      EXPECT_EQ(here, items("auto/3", {{rank, std::to_string(i)}})) << rank << " " << i;
      sum += here;
    }
    EXPECT_EQ(sum, 24) << rank;
    const auto refused = [&](const std::string& shard,
                             const std::map<std::string, std::string>& extra) {
      const ProgramResult result = run(words(job, "out", {"--shard", shard}), extra);
      EXPECT_EQ(result.exit_code, 2) << result.err;
    };
    refused("auto", {{rank, "0"}});               // of how many?
    refused("auto", {{rank, "3"}, {size, "3"}});  // ranks end at 2
    refused("auto/3", {{rank, "-1"}});
    refused("auto/3", {{rank, "first"}});
  }
}

}  // namespace
}  // namespace tessera::batch_many_test
