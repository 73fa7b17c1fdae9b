// Jobs that are killed or asked to stop at moments random, until one gets through: the same
// images as if nothing had happened, nothing told twice.
#include <chrono>
#include <set>
#include <thread>

#include "engine/core/philox.h"
#include "tests/integration/batch/batch_program.h"

namespace tessera::batch_kill_test {
namespace {

class BatchKill : public BatchTest {
 protected:
  // Runs until `lines` records stand in the journal, then a little longer, then sends the signal.
  ProgramResult interrupt(const std::string& job, std::size_t lines, std::uint32_t more_us,
                          int number) {
    return run(words(job, "out", {"--json", "--batch-size", "2"}), {}, [&](pid_t child) {
      for (int i = 0; i < 60000 && lines_of(kJournal) < lines; ++i) {
        std::this_thread::sleep_for(std::chrono::microseconds(500));
      }
      std::this_thread::sleep_for(std::chrono::microseconds(more_us));
      kill(child, number);
    });
  }
  // Ids of whole lines on stdout.
  static std::vector<std::string> heard_ids(const ProgramResult& result) {
    std::vector<std::string> ids;
    std::istringstream in(result.out.substr(0, result.out.rfind('\n') + 1));
    for (std::string line; std::getline(in, line);) {
      ids.push_back(nlohmann::ordered_json::parse(line)["id"]);
    }
    return ids;
  }
  static constexpr const char* kJournal = "out/.tessera/shard-00001-of-00001.jnl";
};

TEST_F(BatchKill, KilledJobsEndAsIfTheyHadNotBeen) {
  const std::string job = put_job(24);
  ASSERT_EQ(batch(job, "truth").exit_code, 0);
  const auto truth = images("truth");
  int kills = 0;
  for (std::uint32_t round = 0; round < 4; ++round) {
    std::filesystem::remove_all(folder_ / "out");
    std::multiset<std::string> heard;
    for (std::size_t at = 2; at < 20; at += 6) {
      const auto lot = philox4x32({round, static_cast<std::uint32_t>(at), 0, 0}, {3, 3})[0];
      const ProgramResult killed = interrupt(job, at, lot % 20000, SIGKILL);
      if (killed.exit_code != -1) break;
      ++kills;
      for (const std::string& id : heard_ids(killed)) heard.insert(id);
    }
    const ProgramResult last = batch(job, "out", {"--json", "--batch-size", "2"});
    ASSERT_EQ(last.exit_code, 0) << last.err;
    for (const std::string& id : heard_ids(last)) heard.insert(id);
    for (const std::string& id : heard) EXPECT_EQ(heard.count(id), 1u) << id << " told twice";
    ASSERT_EQ(images("out"), truth) << round;
    EXPECT_EQ(temporaries(), 0u);
    EXPECT_EQ(run({"batch", "status", "out"}).exit_code, 0);
  }
  std::printf("killed %d times\n", kills);
  EXPECT_GE(kills, 4);
}

TEST_F(BatchKill, SignalsEndWithSeventyFive) {
  const std::string job = put_job(24);
  ASSERT_EQ(batch(job, "truth").exit_code, 0);
  std::size_t done = 0;
  for (const int number : {SIGTERM, SIGINT}) {
    const ProgramResult stopped = interrupt(job, done + 3, 0, number);
    ASSERT_EQ(stopped.exit_code, 75) << stopped.err;
    const std::size_t now = heard_ids(stopped).size();
    EXPECT_GE(now, 2u);
    done += now;
    EXPECT_EQ(images("out").size(), done) << "what is generated is notified";
    EXPECT_EQ(temporaries(), 0u) << "images in work are finished or dropped whole";
  }
  ASSERT_LT(done, 24u);
  ASSERT_EQ(batch(job, "out").exit_code, 0);
  EXPECT_EQ(images("out"), images("truth"));
}

TEST_F(BatchKill, TheSecondOfTwoProcessesStopsAtOnce) {
  const std::string job = put_job(24);
  ProgramResult second;
  const TempFolder logs;
  const ProgramResult first = run(words(job, "out", {}), {}, [&](pid_t child) {
    for (int i = 0; i < 60000 && lines_of(kJournal) < 2; ++i) {
      std::this_thread::sleep_for(std::chrono::microseconds(500));
    }
    kill(child, SIGSTOP);  // so that it surely holds the shard
    const auto started = std::chrono::steady_clock::now();
    second = run(words(job, "out", {}), {}, nullptr, (logs / "second").c_str());
    EXPECT_LT(std::chrono::steady_clock::now() - started, std::chrono::seconds(20));
    EXPECT_NE(second.err.find("process " + std::to_string(child) + " on "), std::string::npos)
        << second.err;
    kill(child, SIGCONT);
  });
  EXPECT_EQ(second.exit_code, 6) << second.err;
  EXPECT_EQ(first.exit_code, 0);
  EXPECT_EQ(images("out").size(), 24u);
}

}  // namespace
}  // namespace tessera::batch_kill_test
