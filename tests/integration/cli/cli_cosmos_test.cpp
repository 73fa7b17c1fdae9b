// `tessera video` and `inspect` on the seeded model that goes on with frames alone.
#include "tests/integration/cli/program.h"
#include "video/frame_reader.h"

namespace tessera::cli_cosmos_test {
namespace {

using Json = nlohmann::ordered_json;

class CliCosmos : public ProgramTest {
 protected:
  ProgramResult expect_exit(const std::vector<std::string>& args, int code) {
    ProgramResult result = run(args);
    EXPECT_EQ(result.exit_code, code) << result.err;
    return result;
  }
  std::vector<std::vector<std::uint8_t>> frames_of(const std::string& name) const {
    FrameReader reader(folder_ / name, {.process = {.program = VIDEO_HELPER}});
    std::vector<std::vector<std::uint8_t>> out;
    while (auto frame = reader.next()) out.push_back(std::move(frame->rgb));
    return out;
  }
};

// The first frames are another model's video, of another size and rate.
TEST_F(CliCosmos, GoesOnWithAVideo) {
  expect_exit({"video", "-m", "test:clip", "-p", "x", "-s", "1", "-o", "first.mkv"}, 0);
  const Json line = expect_exit({"video", "-m", "test:cosmos", "--first-frames", "first.mkv", "-s",
                                 "2", "--json", "-o", "on.mkv"},
                                0)
                        .json_lines()
                        .at(0);
  EXPECT_EQ(line["frames"], 17);
  EXPECT_EQ(line["first_frames"], 9);
  EXPECT_EQ(line["fps"], 25);
  EXPECT_EQ(line["width"], 48);
  EXPECT_EQ(line["finished"], true);
  EXPECT_EQ(frames_of("on.mkv").size(), 17u);
  expect_exit({"video", "-m", "test:cosmos", "--first-frames", "first.mkv", "-s", "2", "-t", "1",
               "--decode", "frames", "-o", "again.mkv"},
              0);
  EXPECT_EQ(frames_of("again.mkv"), frames_of("on.mkv"));
}

TEST_F(CliCosmos, RefusesATextAndNoFrames) {
  const auto missing = expect_exit({"video", "-m", "test:cosmos", "-o", "a.mkv"}, 2);
  EXPECT_NE(missing.err.find("--first-frames"), std::string::npos) << missing.err;
  expect_exit({"video", "-m", "test:clip", "-p", "x", "-s", "1", "-o", "first.mkv"}, 0);
  const auto text = expect_exit(
      {"video", "-m", "test:cosmos", "-p", "x", "--first-frames", "first.mkv", "-o", "a.mkv"}, 2);
  EXPECT_NE(text.err.find("goes on with frames"), std::string::npos) << text.err;
  const auto features = expect_exit(
      {"video", "-m", "test:cosmos-text", "--first-frames", "first.mkv", "-o", "a.mkv"}, 2);
  EXPECT_NE(features.err.find("--text-features"), std::string::npos) << features.err;
}

TEST_F(CliCosmos, InspectShowsIt) {
  const Json line =
      expect_exit({"inspect", "test:cosmos-text", "--memory", "--json"}, 0).json_lines().at(0);
  EXPECT_EQ(line["family"], "cosmos");
  EXPECT_EQ(line["prompt"], "frames");
  EXPECT_EQ(line["clip_frames"], 17);
  EXPECT_EQ(line["clip_fps"], 25);
  EXPECT_EQ(line["text_features"], (Json{512, 24}));
  EXPECT_GT(line["memory"]["total"], 0);
}

}  // namespace
}  // namespace tessera::cli_cosmos_test
