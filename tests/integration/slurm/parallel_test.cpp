// Shards side by side on one machine: the command of docs/scale-out.md, word for word, by the real
// GNU parallel.
#include "tests/integration/slurm/scale_out.h"

namespace tessera::parallel_test {
namespace {

class GnuParallel : public ScaleOutTest {
 protected:
  void SetUp() override {
    if (::access("/usr/bin/parallel", X_OK) != 0) GTEST_SKIP() << "not installed: parallel";
    std::filesystem::create_directories(home_ / "bin");
    std::filesystem::create_symlink(TESSERA_PROGRAM, home_ / "bin/tessera");
  }
  // The first line of a page that begins so.
  static std::string line_of(const std::string& page, const std::string& beginning) {
    std::istringstream in(get_file(std::string(TESSERA_SOURCE_DIR) + "/docs/" + page));
    for (std::string line; std::getline(in, line);) {
      if (line.starts_with(beginning)) return line;
    }
    return "";
  }
  ProgramResult shell(const std::string& line,
                      const std::function<void(pid_t)>& meanwhile = nullptr) {
    return run_program(
        "/bin/sh", {"-c", line},
        {{"PATH", (home_ / "bin").string() + ":/usr/bin:/bin"}, {"TESSERA_MODEL", kModel}},
        meanwhile);
  }
};

TEST_F(GnuParallel, TheDocumentedLineGeneratesAndGoesOn) {
  const std::string line = line_of("scale-out.md", "seq 4 | parallel ");
  ASSERT_NE(line, "");
  const std::string job = put_job(120);
  generate_whole(job);
  // One of the four is notified to stop in its work: the line fails and says how many did.
  const std::string journal = journal_of("out", 2, 4);
  std::size_t total = 0;
  const ProgramResult stopped = shell(line, [&](pid_t) {
    ASSERT_TRUE(wait_for(60, [&] { return lines_of(journal) >= 4; }));
    std::string word;  // process 123 on host
    pid_t generator = 0;
    std::istringstream(content(journal + ".owner")) >> word >> generator;
    ASSERT_GT(generator, 0);
    kill(generator, SIGTERM);
  });
  EXPECT_EQ(stopped.exit_code, 1) << stopped.err;
  const auto report = run({"batch", "status", "out", "--json"}).json_lines().at(0);
  for (const auto& shard : report["shards"]) total += shard["total"].get<std::size_t>();
  EXPECT_EQ(total, 120u);
  EXPECT_GT(report["shards"][1]["pending"], 0);
  EXPECT_EQ(report["shards"][0]["pending"], 0) << "the other shards go on";
  EXPECT_EQ(report["shards"][3]["pending"], 0);
  const std::string first = content(journal);

  const ProgramResult again = shell(line);
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(content(journal).substr(0, first.size()), first);
  expect_once(done_in(content(journal)), journal);
  expect_whole("out");
}

}  // namespace
}  // namespace tessera::parallel_test
