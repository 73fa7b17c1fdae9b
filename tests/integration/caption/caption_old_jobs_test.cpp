// Captioning jobs that an earlier program began, tests/golden/jobs, and that this one ends: the
// texts are those of a job that one program did alone.
#include "apps/captions/webdataset.h"
#include "tests/integration/caption/caption_program.h"
#include "tests/support/memory_source.h"

namespace tessera::caption_old_jobs_test {
namespace {

namespace fs = std::filesystem;

class CaptionOldJobs : public CaptionTest {
 protected:
  void SetUp() override {
    CaptionTest::SetUp();
    fs::copy(old_ / "pictures", folder_ / "in");
  }
  ProgramResult describe(std::vector<std::string> more, int code) {
    std::vector<std::string> args = {"caption",      "in", "-m",           "test:tiny",
                                     "--max-tokens", "24", "--batch-size", "1"};
    args.insert(args.end(), more.begin(), more.end());
    const ProgramResult result = run(args);
    EXPECT_EQ(result.exit_code, code) << result.err;
    return result;
  }
  // The journal up to so many records, and the output that they speak of with a torn line after.
  void put_killed(const std::string& name, std::size_t records) {
    const fs::path from = old_ / fs::path(name).extension().string().substr(1);
    std::istringstream in(get_file(from / (name + ".journal")));
    std::string left, line;
    std::uint64_t end = 0;
    for (std::size_t i = 0; i <= records && std::getline(in, line); ++i) {
      left += line + "\n";
      end = Json::parse(line).value("end", end);
    }
    put(name + ".journal", left + "{\"n\":");
    put(name + ".part", get_file(from / name).substr(0, end) + "half a li");
  }

  const fs::path old_ = fs::path(TESSERA_SOURCE_DIR) / "tests/golden/jobs";
};

TEST_F(CaptionOldJobs, AKilledJobOfLinesIsEnded) {
  const std::string whole = get_file(old_ / "jsonl/x.jsonl");
  for (const std::size_t records : {1u, 3u, 6u}) {
    put_killed("x.jsonl", records);
    describe({"-o", "x.jsonl"}, 3);
    EXPECT_EQ(texts(content("x.jsonl")), texts(whole));
    std::size_t kept = 0;  // lines of the earlier program, byte for byte
    for (std::size_t i = 1; i < records; ++i) kept = whole.find('\n', kept) + 1;
    EXPECT_EQ(content("x.jsonl").substr(0, kept), whole.substr(0, kept));
    fs::remove(folder_ / "x.jsonl");
  }
}

TEST_F(CaptionOldJobs, AKilledTableIsEnded) {
  describe({"-o", "truth.csv"}, 3);
  put_killed("x.csv", 4);
  describe({"-o", "x.csv"}, 3);
  // But for the seconds, and for the passes, which follow the time that they take.
  const auto rows = [&](const std::string& name) {
    std::string text = content(name);
    std::string out;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = text.find("\r\n", at) + 2;
      const std::string row = text.substr(at, end - at);
      const std::size_t seconds = row.rfind(',', row.rfind(',', row.rfind(',') - 1) - 1);
      std::string heard = row.substr(0, seconds);
      std::size_t passes = std::string::npos;  // the comma before them, fourth from the end
      for (int i = 0; i < 4; ++i) passes = heard.rfind(',', passes - 1);
      out += heard.erase(passes, heard.find(',', passes + 1) - passes) + "\n";
      at = end;
    }
    return out;
  };
  EXPECT_EQ(rows("x.csv"), rows("truth.csv"));
}

TEST_F(CaptionOldJobs, AFinishedJobWritesNothingMore) {
  const std::string whole = get_file(old_ / "jsonl/x.jsonl");
  put("x.jsonl", whole);
  put("x.jsonl.journal", get_file(old_ / "jsonl/x.jsonl.journal"));
  const ProgramResult again = describe({"-o", "x.jsonl"}, 3);
  EXPECT_NE(again.err.find("1 failed in an earlier run"), std::string::npos) << again.err;
  EXPECT_EQ(content("x.jsonl"), whole);
  EXPECT_EQ(content("x.jsonl.journal"), get_file(old_ / "jsonl/x.jsonl.journal"));
  const ProgramResult status = run({"caption", "status", "x.jsonl", "--json"});
  EXPECT_EQ(status.exit_code, 3) << status.err;
  EXPECT_EQ(status.json_lines().at(0).at("done"), 6);
}

TEST_F(CaptionOldJobs, AKilledJobThatAddsCaptionsAddsThemOnce) {
  describe({"-o", "truth.jsonl"}, 3);
  const auto truth = texts(content("truth.jsonl"));
  for (const auto& entry : fs::directory_iterator(old_ / "append/in")) {
    fs::copy(entry.path(), folder_ / "in" / entry.path().filename());
  }
  describe({"--existing", "append"}, 3);
  for (const auto& [path, text] : truth) {
    const bool mine = path == "in/p1.png" || path == "in/p3.png" || path == "in/p5.png";
    const std::string joined = mine ? text.empty() ? "mine" : "mine " + text : text;
    EXPECT_EQ(content(path.substr(0, path.size() - 4) + ".txt"), joined) << path;
  }
}

}  // namespace
}  // namespace tessera::caption_old_jobs_test
