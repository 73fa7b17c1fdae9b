// Progress of a job in both forms: items, images an hour, tokens a pass and the time that is
// left; and what a process holds.
#include <fcntl.h>

#include "tests/integration/batch/batch_program.h"

namespace tessera::batch_progress_test {
namespace {

using BatchProgress = BatchTest;

TEST_F(BatchProgress, JsonLines) {
  const ProgramResult result =
      batch(put_job(6), "out", {"--batch-size", "2", "--progress", "json", "--decode", "plain"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  std::istringstream in(result.err);
  std::size_t lines = 0;
  nlohmann::ordered_json last;
  for (std::string text; std::getline(in, text);) {
    const auto line = nlohmann::ordered_json::parse(text).at("progress");
    ++lines;
    EXPECT_EQ(line["of"], 6);
    EXPECT_DOUBLE_EQ(line["tokens_per_pass"], 1.0) << "plain decoding";
    EXPECT_EQ(line["pictures_per_hour"].is_null(), line["first"] == 0);
    EXPECT_GE(line["eta_seconds"], 0);
    EXPECT_GT(line["resident_bytes"], 1 << 20);
    EXPECT_GT(line["descriptors"], 2);
    EXPECT_LT(line["descriptors"], 32);
    last = line;
  }
  EXPECT_GE(lines, 3u) << "one a batch at least";
  EXPECT_GE(last["first"], 4) << "the last batch is at work, or over";
  EXPECT_EQ(last["eta_seconds"], 0) << "nothing is left";
  EXPECT_GT(last["pictures_per_hour"], 0);
}

// At every line: what is done, failed, skipped and pending are all items, and those of a batch that
// is still to be described are pending.
TEST_F(BatchProgress, EveryLineCountsEveryItem) {
  const std::string job = put_job(8);
  std::filesystem::create_directory(folder_ / "out");
  put_file(folder_ / "out/p2.png", "mine");
  const auto lines_of = [&](const std::vector<std::string>& more, int exit_code) {
    std::vector<std::string> flags = {"--batch-size", "2",         "--progress", "json",
                                      "--name",       "{id}.png",  "--json",     "--captioner",
                                      "test:tiny",    "--captions"};
    flags.insert(flags.begin(), more.begin(), more.end());
    const ProgramResult result = batch(job, "out", flags);
    EXPECT_EQ(result.exit_code, exit_code) << result.err;
    std::vector<nlohmann::ordered_json> lines;
    std::istringstream in(result.err);
    for (std::string text; std::getline(in, text);) {
      if (text.starts_with("{")) lines.push_back(nlohmann::ordered_json::parse(text)["progress"]);
    }
    for (const auto& line : lines) {
      EXPECT_EQ(line["done"].get<int>() + line["failed"].get<int>() + line["skipped"].get<int>() +
                    line["pending"].get<int>(),
                8)
          << line;
      EXPECT_EQ(line["total"], 8);
      EXPECT_EQ(line["first"].get<int>(), line["done"].get<int>() + line["failed"].get<int>());
      EXPECT_EQ(line["of"].get<int>(), 8 - line["skipped"].get<int>());
      EXPECT_EQ(line["first"].get<int>() % 2, 0) << "items of a batch end together";
    }
    return lines;
  };
  const auto first = lines_of({}, 3);
  ASSERT_GE(first.size(), 4u) << "one a batch at least";
  EXPECT_EQ(first.front()["pending"], 8);
  EXPECT_EQ(first.back()["done"], 5);
  EXPECT_EQ(first.back()["failed"], 1);
  EXPECT_EQ(first.back()["pending"], 2);
  for (const char* name : {"p1.png", "p5.txt", "p7.png"}) {
    std::filesystem::remove(folder_ / "out" / name);
  }
  const auto second = lines_of({"--retry-failed", "--overwrite"}, 0);
  ASSERT_GE(second.size(), 2u);
  EXPECT_EQ(second.front()["skipped"], 4);
  EXPECT_EQ(second.front()["pending"], 4);
  EXPECT_EQ(second.back()["done"], 2);
}

// A terminal of our own: what is drawn between the program's start and its end.
TEST_F(BatchProgress, BarOnATerminal) {
  const std::string job = put_job(400);
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
  if (terminal < 0 || grantpt(terminal) != 0 || unlockpt(terminal) != 0) {
    GTEST_SKIP() << "no pseudo terminal here";
  }
  const std::string name = ptsname(terminal);
  std::vector<std::string> args = words(job, "out", {"--batch-size", "2", "--decode", "plain"});
  args.insert(args.begin(), TESSERA_PROGRAM);
  const pid_t child = fork();
  if (child == 0) {
    const int other = open(name.c_str(), O_RDWR | O_NOCTTY);
    const int nowhere = open("/dev/null", O_WRONLY);
    dup2(nowhere, 1);
    dup2(other, 2);
    close(terminal);
    if (chdir(folder_.path().c_str()) != 0) _exit(99);
    std::vector<char*> argv;
    for (std::string& arg : args) argv.push_back(arg.data());
    argv.push_back(nullptr);
    execv(argv[0], argv.data());
    _exit(98);
  }
  std::string drawn;
  char buffer[4096];
  for (ssize_t got = 0; (got = read(terminal, buffer, sizeof buffer)) > 0;) {
    drawn.append(buffer, static_cast<std::size_t>(got));
  }
  close(terminal);
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << drawn;
  for (const char* part : {"image ", "/400", " images/h", "1.00 tokens/pass", "ETA "}) {
    EXPECT_NE(drawn.find(part), std::string::npos) << part << "\n" << drawn;
  }
}

}  // namespace
}  // namespace tessera::batch_progress_test
