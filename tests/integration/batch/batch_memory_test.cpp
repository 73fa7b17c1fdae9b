// The real program while the system refuses it memory: more tries, fewer images and texts at
// once, the same bytes in the end.
#include "tests/integration/batch/batch_program.h"

namespace tessera::batch_memory_test {
namespace {

constexpr const char* kAlways = "1000000000";

class BatchMemory : public BatchTest {
 protected:
  void SetUp() override {
    const ProgramResult probe = run({"--version"}, refusing(std::size_t{1} << 40, kAlways));
    if (probe.exit_code != 0) GTEST_SKIP() << "nothing may be loaded in front of this program";
  }
  static std::map<std::string, std::string> refusing(std::size_t from, const std::string& times) {
    return {{"LD_PRELOAD", TESSERA_REFUSE_MEMORY},
            {"REFUSE_FROM", std::to_string(from)},
            {"REFUSE_TIMES", times}};
  }
  // Prompts so long that the cache of the images is larger than any other block.
  std::string put_long_job(int count) {
    std::string text;
    for (int i = 1; i <= count; ++i) {
      text += "{\"id\":\"p" + std::to_string(i) + "\",\"prompt\":\"" + std::string(900, 'a') +
              std::to_string(i) + "\"}\n";
    }
    put_file(folder_ / "long.jsonl", text);
    return "long.jsonl";
  }
  // The largest size of blocks, of a falling row, whose refusal the program speaks of.
  std::size_t size_that_matters(const std::string& job, const std::vector<std::string>& flags,
                                const std::string& times, const std::string& heard) {
    for (std::size_t from = std::size_t{1} << 22; from > 50'000; from = from / 4 * 3) {
      std::filesystem::remove_all(folder_ / "out");
      if (run(words(job, "out", flags), refusing(from, times)).err.find(heard) !=
          std::string::npos) {
        return from;
      }
    }
    return 0;
  }
  std::map<std::string, std::string> tree(const std::string& out) const {
    std::map<std::string, std::string> all;
    for (const auto& entry : std::filesystem::directory_iterator(folder_ / out)) {
      if (entry.is_regular_file()) all[entry.path().filename().string()] = get_file(entry.path());
    }
    return all;
  }
  static std::size_t count(const std::string& text, const std::string& what) {
    std::size_t found = 0;
    for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++found;
    return found;
  }
};

TEST_F(BatchMemory, FailedItemsAreTriedAgainAsOftenAsAsked) {
  const std::string job = put_long_job(3);
  ASSERT_EQ(batch(job, "truth").exit_code, 0);
  const std::size_t from = size_that_matters(job, {"--max-retries", "2"}, "2", "is tried again");
  ASSERT_GT(from, 0u);
  const auto generate = [&](const std::vector<std::string>& flags, const char* times) {
    std::filesystem::remove_all(folder_ / "out");
    return run(words(job, "out", flags), refusing(from, times));
  };
  const ProgramResult twice = generate({"--max-retries", "2"}, "2");
  EXPECT_EQ(twice.exit_code, 0) << twice.err;
  EXPECT_EQ(count(twice.err, "item p1 is tried again"), 2u) << twice.err;
  EXPECT_TRUE(tree("out") == tree("truth"));
  const ProgramResult thrice = generate({"--max-retries", "2"}, "3");
  EXPECT_EQ(thrice.exit_code, 3) << thrice.err;
  EXPECT_EQ(count(thrice.err, "is tried again"), 2u) << thrice.err;
  EXPECT_EQ(images("out").size(), 2u);
  const ProgramResult never = generate({}, "2");
  EXPECT_EQ(never.exit_code, 3) << never.err;
  EXPECT_EQ(count(never.err, "is tried again"), 0u) << never.err;
  EXPECT_EQ(images("out").size(), 1u) << "two tries, two items";
  EXPECT_EQ(batch(job, "out", {"--retry-failed"}).exit_code, 0);
  EXPECT_TRUE(tree("out") == tree("truth"));
}

TEST_F(BatchMemory, FewerTextsAtOnceAreTheSameTexts) {
  const std::string job = put_job(24);
  const std::vector<std::string> flags = {"--batch-size", "8", "--captioner", "test:tiny",
                                          "--captions"};
  ASSERT_EQ(batch(job, "truth", flags).exit_code, 0);
  const std::size_t from = size_that_matters(job, flags, kAlways, "texts at once from here on");
  ASSERT_GT(from, 0u);
  std::filesystem::remove_all(folder_ / "out");
  const ProgramResult result = run(words(job, "out", flags), refusing(from, kAlways));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(tree("out") == tree("truth"));
  EXPECT_EQ(count(result.err, "one after the other"), 1u) << result.err;
  EXPECT_EQ(count(result.err, "texts at once"), 1u) << "told once, not for each batch\n"
                                                    << result.err;
}

}  // namespace
}  // namespace tessera::batch_memory_test
