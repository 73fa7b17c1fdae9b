// Two hundred kills of the real program at moments random: each job ends as if nothing had
// happened, with nothing lost and nothing recorded twice.
#include <chrono>
#include <set>
#include <thread>

#include "engine/core/philox.h"
#include "tests/integration/batch/batch_program.h"

namespace tessera::batch_random_kill_test {
namespace {

constexpr int kKills = 200;
constexpr std::size_t kItems = 8, kAtOnce = 2;

class BatchRandomKill : public BatchTest {
 protected:
  static std::vector<std::string> flags(bool described) {
    std::vector<std::string> flags = {"--json", "--batch-size", "2", "--sidecar"};
    if (described) flags.insert(flags.end(), {"--captioner", "test:tiny", "--captions"});
    return flags;
  }
  // Ids of whole records of done items in the journal of a folder, in order.
  std::vector<std::string> recorded() const {
    std::vector<std::string> ids;
    const std::string name = "out/.tessera/shard-00001-of-00001.jnl";
    if (!std::filesystem::exists(folder_ / name)) return ids;
    const std::string text = content(name);
    std::istringstream in(text.substr(0, text.rfind('\n') + 1));
    for (std::string line; std::getline(in, line);) {
      const auto record = nlohmann::ordered_json::parse(line);
      if (record.contains("id")) ids.push_back(record["id"]);
    }
    return ids;
  }
  void add_heard(const ProgramResult& result, std::multiset<std::string>& heard) const {
    std::istringstream in(result.out.substr(0, result.out.rfind('\n') + 1));
    for (std::string line; std::getline(in, line);) {
      heard.insert(nlohmann::ordered_json::parse(line)["id"].get<std::string>());
    }
  }
  // One run that is killed after so many microseconds, or ends before.
  ProgramResult killed(const std::string& job, bool described, std::uint32_t after_us) {
    put_file(logs_ / "stdout", "");  // a child that is killed early does not clear it
    return run(words(job, "out", flags(described)), {}, [&](pid_t child) {
      std::this_thread::sleep_for(std::chrono::microseconds(after_us));
      kill(child, SIGKILL);
    });
  }
};

TEST_F(BatchRandomKill, NothingIsLostAndNothingIsDoneTwice) {
  using Clock = std::chrono::steady_clock;
  const std::string job = put_job(kItems);
  std::map<std::string, std::string> truth[2];
  std::uint32_t whole_us[2];
  for (const bool described : {false, true}) {
    const std::string out = described ? "truth1" : "truth0";
    const auto start = Clock::now();
    ASSERT_EQ(batch(job, out, flags(described)).exit_code, 0);
    whole_us[described] = static_cast<std::uint32_t>(
        std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - start).count());
    ASSERT_EQ(run({"batch", "merge", out}).exit_code, 0);
    truth[described] = tree(out);
    ASSERT_EQ(truth[described].size(), kItems * (described ? 3 : 2) + 1);
  }
  int kills = 0, jobs = 0, lost = 0, twice = 0, in_work = 0, early = 0;
  std::uint32_t random = 0;
  while (kills < kKills) {
    const bool described = jobs % 4 == 3;
    std::filesystem::remove_all(folder_ / "out");
    std::multiset<std::string> heard;
    std::size_t max_open = 0;
    while (true) {
      // Twice out of three within the time that a whole run takes, else early.
      const std::uint32_t lot = philox4x32({random++, 0, 0, 0}, {11, 200})[0];
      const std::uint32_t span = lot % 3 == 0 ? whole_us[described] / 4 : whole_us[described];
      const ProgramResult result = killed(job, described, (lot >> 8) % span);
      add_heard(result, heard);
      const std::vector<std::string> done = recorded();
      const std::set<std::string> once(done.begin(), done.end());
      if (once.size() != done.size()) ++twice;
      for (const std::string& id : heard) lost += once.contains(id) ? 0 : 1;
      // Images that stand there without a record: of the one item in work.
      const std::size_t open =
          std::filesystem::exists(folder_ / "out")
              ? images("out").size() - std::min(images("out").size(), done.size())
              : 0;
      max_open = std::max(max_open, open);
      if (result.exit_code != -1) {
        ASSERT_EQ(result.exit_code, 0) << result.err;
        break;
      }
      ++kills;
      if (done.empty()) ++early;
    }
    ++jobs;
    in_work = std::max(in_work, static_cast<int>(max_open));
    for (const std::string& id : heard) EXPECT_EQ(heard.count(id), 1u) << id << " told twice";
    EXPECT_EQ(recorded().size(), kItems);
    ASSERT_EQ(run({"batch", "merge", "out"}).exit_code, 0);
    ASSERT_EQ(tree("out"), truth[described]) << "job " << jobs;
    EXPECT_EQ(temporaries(), 0u);
  }
  std::printf(
      "%d kills in %d jobs, %d before the first record: %d items lost, %d done twice, at "
      "most %d without a record; every tree equal\n",
      kills, jobs, early, lost, twice, in_work);
  EXPECT_EQ(lost, 0);
  EXPECT_EQ(twice, 0);
  EXPECT_LE(in_work, 1) << "of " << kAtOnce << " at once";
  EXPECT_LT(early, kills) << "some struck in mid-work";
}

}  // namespace
}  // namespace tessera::batch_random_kill_test
