// scene_dump as a training machine sees it: a pipe of JSON lines and pixels, the same for any
// number of threads, and one-line refusals.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <string>

#include "apps/lab/scene/video_set.h"
#include "apps/lab/still_life/still_set.h"
#include "engine/core/error.h"
#include "tests/support/things_pack.h"

namespace tessera::scene_dump_test {
namespace {

struct Outcome {
  std::string output;
  int exit_code = -1;
};

Outcome run(const std::string& flags) {
  Outcome outcome;
  FILE* pipe = popen((std::string(SCENE_DUMP_PATH) + " " + flags).c_str(), "r");
  std::array<char, 65536> buffer;
  for (std::size_t got; (got = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) {
    outcome.output.append(buffer.data(), got);
  }
  outcome.exit_code = WEXITSTATUS(pclose(pipe));
  return outcome;
}

TEST(SceneDump, WritesTheRecordsInOrder) {
  const Outcome outcome = run("--seed 4 --split holdout --start 100 --count 70 --size 32");
  ASSERT_EQ(outcome.exit_code, 0);
  std::size_t at = 0;
  for (std::uint64_t index = 100; index < 170; ++index) {
    const SceneRecord record =
        make_record({.seed = 4, .split = SceneSplit::kHoldout, .size = 32}, index);
    const std::string line = record_to_json(record) + "\n";
    ASSERT_EQ(outcome.output.substr(at, line.size()), line);
    at += line.size();
    const std::string pixels = outcome.output.substr(at, 32 * 32 * 3);
    ASSERT_EQ(pixels, std::string(record.image.rgb.begin(), record.image.rgb.end()));
    at += pixels.size();
  }
  EXPECT_EQ(at, outcome.output.size());
}

TEST(SceneDump, WritesVideosFrameByFrame) {
  const Outcome outcome = run("--seed 4 --split val --start 7 --count 3 --size 16 --frames 5");
  ASSERT_EQ(outcome.exit_code, 0);
  std::string expected;
  for (std::uint64_t index = 7; index < 10; ++index) {
    const VideoRecord record =
        make_video_record({.seed = 4, .split = SceneSplit::kVal, .size = 16}, 5, index);
    expected += record_to_json(record) + "\n";
    for (const SceneImage& frame : record.images) {
      expected.append(frame.rgb.begin(), frame.rgb.end());
    }
  }
  EXPECT_EQ(outcome.output, expected);
}

TEST(SceneDump, WritesStillLifesWithThingsOutOfAPack) {
  const std::string file = ::testing::TempDir() + "scene_dump_things.pack";
  std::ofstream(file, std::ios::binary) << small_pack();
  const Outcome outcome =
      run("--world 2 --things '" + file + "' --seed 4 --split val --start 7 --count 5 --size 32 --threads 3");
  ASSERT_EQ(outcome.exit_code, 0);
  const still::Things things = still::parse_things(small_pack(), file);
  std::string expected;
  for (std::uint64_t index = 7; index < 12; ++index) {
    const still::Record record =
        still::make_record({.seed = 4, .split = SceneSplit::kVal, .size = 32}, things, index);
    expected += still::record_to_json(record) + "\n";
    expected.append(record.image.rgb.begin(), record.image.rgb.end());
  }
  EXPECT_EQ(outcome.output, expected);
  EXPECT_NE(run("--world 2 --seed 4 --split val --start 7 --count 5 --size 32").output, expected);
  std::ofstream(file, std::ios::binary) << small_pack().substr(0, 100);
  EXPECT_EQ(run("--world 2 --things '" + file + "' 2>/dev/null").exit_code, 2);
  std::remove(file.c_str());
}

TEST(SceneDump, ThreadsAndStartChangeNothing) {
  const std::string whole = run("--seed 5 --count 130 --size 32").output;
  for (const char* threads : {"2", "3", "7"}) {
    EXPECT_EQ(run(std::string("--seed 5 --count 130 --size 32 --threads ") + threads).output,
              whole);
  }
  EXPECT_EQ(run("--seed 5 --count 50 --size 32").output +
                run("--seed 5 --start 50 --count 80 --size 32").output,
            whole);
}

TEST(SceneDump, PixelsOrJsonCanBeLeftOut) {
  EXPECT_EQ(run("--count 9 --size 32 --no-json").output.size(), 9u * 32 * 32 * 3);
  const std::string lines = run("--count 9 --size 32 --no-pixels").output;
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 9);
  EXPECT_EQ(run("--count 0").output, "");
}

TEST(SceneDump, BadFlagsEndWithCodeTwoAndNothingWritten) {
  for (const char* flags :
       {"--sede 1", "--seed", "--seed -1", "--seed 18446744073709551616", "--split test",
        "--size 15", "--size 4097", "--threads 0", "--count 1e3", "--count ''", "--world 3",
        "--things x.pack", "--world 2 --things /nowhere/x.pack", "--world 2 --frames 4"}) {
    const Outcome outcome = run(std::string(flags) + " 2>/dev/null");
    EXPECT_EQ(outcome.exit_code, 2) << flags;
    EXPECT_EQ(outcome.output, "") << flags;
  }
}

TEST(SceneDump, AFullDiskEndsWithCodeSix) {
  EXPECT_EQ(run("--count 100 >/dev/full 2>/dev/null").exit_code, 6);
}

TEST(SceneSet, RefusesASizeOutOfRangeAndPassesOnWhatTheSinkThrows) {
  ThreadPool pool(2);
  EXPECT_THROW(for_each_scene({.size = 8}, pool, [](const SceneRecord&) {}), Error);
  EXPECT_THROW(for_each_scene({.count = 3, .size = 16}, pool,
                              [](const SceneRecord&) { throw std::runtime_error("stop"); }),
               std::runtime_error);
}

}  // namespace
}  // namespace tessera::scene_dump_test
