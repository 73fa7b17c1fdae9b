// What the tests of schedulers share: a job, the truth of one process, and what is left of a run.
#pragma once

#include <chrono>
#include <set>
#include <thread>

#include "tests/integration/batch/batch_program.h"

namespace tessera {

class ScaleOutTest : public BatchTest {
 protected:
  static constexpr const char* kModel = "test:tiny";

  // Generates the job in one process and joins it: the folder "whole".
  void generate_whole(const std::string& job) {
    const ProgramResult generated = batch(job, "whole", {"--batch-size", "8"});
    ASSERT_EQ(generated.exit_code, 0) << generated.err;
    ASSERT_EQ(run({"batch", "merge", "whole"}).exit_code, 0);
  }
  // Every item of `out` is done, and joined it is what one process generated, byte for byte.
  void expect_whole(const std::string& out) {
    EXPECT_EQ(run({"batch", "status", out}).exit_code, 0);
    const ProgramResult merged = run({"batch", "merge", out});
    EXPECT_EQ(merged.exit_code, 0) << merged.err;
    const std::string results = content("whole/results.jsonl");
    EXPECT_FALSE(results.empty());
    EXPECT_EQ(content(out + "/results.jsonl"), results);
    EXPECT_EQ(lines_of("whole/results.jsonl"), images("whole").size());
    EXPECT_TRUE(images(out) == images("whole")) << "images differ";
    EXPECT_EQ(temporaries(), 0u);
  }
  static std::string journal_of(const std::string& out, int shard, int of) {
    char name[80];
    std::snprintf(name, sizeof name, "/.tessera/shard-%05d-of-%05d.jnl", shard, of);
    return out + name;
  }
  // Ids of the done items in whole lines of a journal, in its order.
  static std::vector<std::string> done_in(const std::string& journal) {
    std::vector<std::string> ids;
    std::istringstream in(journal.substr(0, journal.rfind('\n') + 1));
    for (std::string line; std::getline(in, line);) {
      const auto record = nlohmann::ordered_json::parse(line);
      if (record.value("st", "") == "done") ids.push_back(record["id"]);
    }
    return ids;
  }
  static void expect_once(const std::vector<std::string>& ids, const std::string& where) {
    const std::set<std::string> different(ids.begin(), ids.end());
    EXPECT_EQ(different.size(), ids.size()) << where << " names an item twice";
  }
  // Waits for `true`; false after `seconds`.
  static bool wait_for(int seconds, const std::function<bool()>& true_now) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
    while (!true_now()) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return true;
  }
};

}  // namespace tessera
