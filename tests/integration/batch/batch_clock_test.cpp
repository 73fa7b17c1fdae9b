// Clocks that jump: ten years off, and set back again and again while a job runs. Nothing that is
// generated, recorded or told depends on the time of day.
#include <chrono>
#include <thread>

#include "tests/integration/batch/batch_program.h"

namespace tessera::batch_clock_test {
namespace {

constexpr const char* kLibrary = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";

class BatchClock : public BatchTest {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(kLibrary)) GTEST_SKIP() << "the package faketime is not installed";
    ASSERT_EQ(batch(put_job(8), "truth", flags()).exit_code, 0);
    ASSERT_EQ(run({"batch", "merge", "truth"}).exit_code, 0);
    truth_ = images("truth");
    results_ = content("truth/results.jsonl");
    ASSERT_EQ(truth_.size(), 8u);
  }
  static std::vector<std::string> flags() { return {"--batch-size", "2", "--sidecar"}; }
  // The time of day jumps; the clock that never steps does not, as on a real machine.
  std::map<std::string, std::string> clock_from(const std::string& file) const {
    return {{"LD_PRELOAD", kLibrary},
            {"FAKETIME_TIMESTAMP_FILE", (folder_ / file).string()},
            {"FAKETIME_NO_CACHE", "1"},
            {"FAKETIME_DONT_FAKE_MONOTONIC", "1"},
            {"DONT_FAKE_MONOTONIC", "1"}};
  }
  int differences() {
    int count = 0;
    EXPECT_EQ(run({"batch", "merge", "out"}).exit_code, 0);
    if (images("out") != truth_) ++count;
    if (content("out/results.jsonl") != results_) ++count;
    for (const auto& [name, bytes] : truth_) {
      const std::string facts = name.substr(0, name.size() - 4) + ".json";
      if (content("out/" + facts) != content("truth/" + facts)) ++count;
    }
    return count;
  }

  std::map<std::string, std::string> truth_;
  std::string results_;
};

TEST_F(BatchClock, TenYearsOff) {
  for (const char* jump : {"+10y", "-10y"}) {
    put_file(folder_ / "clock", jump);
    const std::string year =
        run_program("/bin/date", {"+%Y"}, clock_from("clock")).out.substr(0, 4);
    const std::string now = run_program("/bin/date", {"+%Y"}).out.substr(0, 4);
    ASSERT_EQ(std::abs(std::stoi(year) - std::stoi(now)), 10) << "the clock is the false one";
    std::filesystem::remove_all(folder_ / "out");
    const ProgramResult result = run(words("job.jsonl", "out", flags()), clock_from("clock"));
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(differences(), 0) << jump;
  }
}

// Killed in between, too: each run lives at another time, and the clock is set while it runs.
TEST_F(BatchClock, SetBackAndForthWhileItRuns) {
  static constexpr const char* kJumps[] = {"+10y", "-10y", "+0",  "-1h",
                                           "+90d", "-1d",  "-2d", "-3d"};
  int jumps = 0, runs = 0, different = 0;
  for (int round = 0; round < 4; ++round) {
    std::filesystem::remove_all(folder_ / "out");
    int exit_code = -1;
    for (int attempt = 0; exit_code == -1; ++attempt) {
      put_file(folder_ / "clock", kJumps[static_cast<std::size_t>(round)]);
      const ProgramResult result =
          run(words("job.jsonl", "out", flags()), clock_from("clock"), [&](pid_t child) {
            for (int i = 0; i < 12; ++i) {
              std::this_thread::sleep_for(std::chrono::milliseconds(4 + round));
              put_file(folder_ / "clock.new", kJumps[static_cast<std::size_t>(jumps) % 8]);
              std::filesystem::rename(folder_ / "clock.new", folder_ / "clock");
              ++jumps;
            }
            if (attempt < 2) kill(child, SIGKILL);
          });
      ++runs;
      exit_code = result.exit_code;
      if (exit_code != -1) {
        ASSERT_EQ(exit_code, 0) << result.err;
      }
    }
    const int now = differences();
    EXPECT_EQ(now, 0) << round;
    different += now;
  }
  std::printf("%d jumps of the clock in %d runs: %d differences\n", jumps, runs, different);
}

}  // namespace
}  // namespace tessera::batch_clock_test
