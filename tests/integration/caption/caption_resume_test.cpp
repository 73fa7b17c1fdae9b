// A job that is killed or stopped goes on where it ended: nothing lost, nothing twice, and the same
// texts as if nothing had happened.
#include <chrono>
#include <thread>

#include "tests/integration/caption/caption_program.h"

namespace tessera::caption_resume_test {
namespace {

constexpr int kImages = 30;

class CaptionResume : public CaptionTest {
 protected:
  // Runs until at least `lines` results stand in `part`, then sends the signal.
  ProgramResult interrupt(const std::vector<std::string>& more, const std::string& part,
                          std::size_t lines, int number) {
    return run(words(more, "24"), {}, [&](pid_t child) {
      const auto enough = [&] {
        const std::string text = content(part);
        return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')) >= lines;
      };
      for (int i = 0; i < 30000 && !enough(); ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      kill(child, number);
    });
  }
  std::map<std::string, std::string> whole_texts(const std::vector<std::string>& more) {
    const ProgramResult result = run(words(more, "24"));
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return texts(content(more.back()));
  }
  std::size_t text_files() const {
    const auto names = files();
    return static_cast<std::size_t>(
        std::count_if(names.begin(), names.end(),
                      [](const std::string& name) { return name.ends_with(".txt"); }));
  }
};

// Drawn at random, so that a text that depended on its place in the run would differ.
TEST_F(CaptionResume, KilledJobsEndAsIfTheyHadNotBeen) {
  put_images("in", kImages);
  const std::vector<std::string> job = {"in",     "--batch-size",  "2",  "--temp", "1", "--prune",
                                        "random", "--keep-tokens", "70", "-o"};
  const auto to = [&](const std::string& name) {
    std::vector<std::string> out = job;
    out.push_back(name);
    return out;
  };
  const auto truth = whole_texts(to("truth.jsonl"));
  ASSERT_EQ(truth.size(), static_cast<std::size_t>(kImages));
  for (const std::size_t lines : {2u, 14u}) {  // the second kill falls on a job that was resumed
    const ProgramResult killed = interrupt(to("x.jsonl"), "x.jsonl.part", lines, SIGKILL);
    ASSERT_EQ(killed.exit_code, -1) << "it ended before it was killed";
    ASSERT_FALSE(std::filesystem::exists(folder_ / "x.jsonl"));
  }
  EXPECT_EQ(whole_texts(to("x.jsonl")), truth);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "x.jsonl.part"));
}

TEST_F(CaptionResume, SignalsEndWithSeventyFive) {
  put_images("in", kImages);
  const auto to = [](const std::string& name) {
    return std::vector<std::string>{"in", "--batch-size", "2", "-o", name};
  };
  const auto truth = whole_texts(to("truth.jsonl"));
  std::size_t lines = 2;
  for (const int number : {SIGINT, SIGTERM}) {
    const ProgramResult stopped = interrupt(to("x.jsonl"), "x.jsonl.part", lines, number);
    EXPECT_EQ(stopped.exit_code, 75) << stopped.err;
    const auto part = texts(content("x.jsonl.part"));
    EXPECT_GE(part.size(), lines);
    EXPECT_LT(part.size(), static_cast<std::size_t>(kImages));
    EXPECT_EQ(
        static_cast<std::size_t>(std::count(stopped.out.begin(), stopped.out.end(), '\n')) >= 1u,
        true);
    lines = part.size() + 2;
  }
  EXPECT_EQ(whole_texts(to("x.jsonl")), truth);
}

// Captions that are added to what is there are added once.
TEST_F(CaptionResume, KilledJobsAppendOnce) {
  put_images("in", kImages);
  const auto truth = whole_texts({"in", "-o", "truth.jsonl"});
  for (int i = 1; i <= kImages; ++i) put("in/p" + std::to_string(i) + ".txt", "mine");
  const std::vector<std::string> job = {"in", "--existing", "append", "--batch-size", "2"};
  const ProgramResult killed = run(words(job, "24"), {}, [&](pid_t child) {
    const auto enough = [&] { return content("in/p2.txt") != "mine"; };
    for (int i = 0; i < 30000 && !enough(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    kill(child, SIGKILL);
  });
  ASSERT_EQ(killed.exit_code, -1);
  ASSERT_EQ(run(words(job, "24")).exit_code, 0);
  EXPECT_EQ(text_files(), static_cast<std::size_t>(kImages));
  // The journal stays: it alone knows that captions were added.
  EXPECT_EQ(files().size(), 2u * kImages + 3) << "no temporary is left";
  for (const auto& [path, text] : truth) {
    const std::string name = path.substr(0, path.size() - 4) + ".txt";
    EXPECT_EQ(content(name), text.empty() ? "mine" : "mine " + text) << path;
  }
}

// A failure before the stop is one after it.
TEST_F(CaptionResume, FailuresOfTheFirstPartCount) {
  put_images("in", kImages);
  put("in/a.png", "the first by name, and no image");
  const std::vector<std::string> job = {"in", "--batch-size", "2", "-o", "x.jsonl"};
  ASSERT_EQ(interrupt(job, "x.jsonl.part", 3, SIGINT).exit_code, 75);
  const ProgramResult rest = run(words(job, "24"));
  EXPECT_EQ(rest.exit_code, 3) << rest.err;
  EXPECT_EQ(texts(content("x.jsonl")).size(), static_cast<std::size_t>(kImages));
}

}  // namespace
}  // namespace tessera::caption_resume_test
