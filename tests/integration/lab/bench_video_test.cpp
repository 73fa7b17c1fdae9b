// `tessera-lab bench video` on models of random weights: what it prints, not how fast it was.
#include "tests/integration/cli/program.h"

namespace tessera::bench_video_test {
namespace {

using BenchVideo = ProgramTest;

TEST_F(BenchVideo, EachMethodStandsNextToPlainAndMemoryNextToLength) {
  const ProgramResult result =
      run({"bench", "video", "-m", "test:clip", "--methods", "frames,sjd", "--windows", "4",
           "--prompts", "3", "--input-seconds", "40,5", "--tokens", "4", "-t", "1"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto lines = result.json_lines();
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0].at("name"), "video.frames");
  EXPECT_EQ(lines[0].at("same_clips"), 3) << "drafts from the grid before change no video";
  EXPECT_EQ(lines[1].at("name"), "video.sjd");
  EXPECT_LT(lines[1].at("same_clips"), 3) << "another draw of the same distribution";
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(lines[i].at("clips"), 3);
    EXPECT_GE(lines[i].at("tokens_per_pass").at("mean"), 1.0);
    EXPECT_GT(lines[i].at("latency_ratio").at("mean"), 0.0);
    EXPECT_GT(lines[i].at("frames_per_second"), 0.0);
    EXPECT_GT(lines[i].at("meters").at("entropy"), 0.0);
  }
  // Ascending, whatever the order asked for.
  EXPECT_EQ(lines[2].at("name"), "video.input.5s");
  EXPECT_EQ(lines[3].at("name"), "video.input.40s");
  EXPECT_EQ(lines[3].at("frames"), 320);
  for (std::size_t i = 2; i < 4; ++i) {
    EXPECT_EQ(lines[i].at("frames_shown"), 4);
    EXPECT_GT(lines[i].at("peak_bytes"), 1 << 20);
    EXPECT_LT(lines[i].at("peak_ratio"), 1.05);
    EXPECT_GT(lines[i].at("reader_peak_bytes"), 1 << 20);
  }
}

TEST_F(BenchVideo, SeveralAtOnceAreTheSameVideos) {
  const ProgramResult result =
      run({"bench", "video", "-m", "test:clip", "--methods", "plain,frames", "--windows", "8",
           "--prompts", "5", "--batch-sizes", "1,3", "-t", "1"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto lines = result.json_lines();
  ASSERT_EQ(lines.size(), 4u);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i].at("name"), i % 2 == 0 ? "video.batch.1" : "video.batch.3");
    EXPECT_EQ(lines[i].at("clips"), 5);
    EXPECT_EQ(lines[i].at("same_clips"), 5);
    EXPECT_GT(lines[i].at("videos_per_second"), 0.0);
    EXPECT_LE(lines[i].at("slots_at_work"), 1.0);
    EXPECT_GT(lines[i].at("slots_at_work"), i % 2 == 0 ? 0.99 : 0.5);
  }
  EXPECT_EQ(lines[0].at("speedup"), 1.0);
}

TEST_F(BenchVideo, AModelOfImagesIsRefused) {
  const ProgramResult result = run({"bench", "video", "-m", "test:tiny", "--prompts", "1"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.err.find("generates videos"), std::string::npos) << result.err;
}

}  // namespace
}  // namespace tessera::bench_video_test
