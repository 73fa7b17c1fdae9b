// `tessera-lab eval videos` on the seeded video model: rows and their order of merit, equal seeds give
// equal lines whatever the threads and the method, first frames, sheets, refusals.
#include "tests/integration/cli/program.h"
#include "vision/image/png.h"

namespace tessera::eval_videos_cli_test {
namespace {

using Json = nlohmann::ordered_json;

class EvalVideos : public ProgramTest {
 protected:
  ProgramResult videos(std::vector<std::string> more, int code = 0) {
    std::vector<std::string> args = {"eval",    "clips", "--json",   "-m",    "test:clip",
                                     "--split", "val",   "--decode", "frames"};
    args.insert(args.end(), more.begin(), more.end());
    ProgramResult result = run(args);
    EXPECT_EQ(result.exit_code, code) << result.err;
    return result;
  }
};

TEST_F(EvalVideos, RowsSheetAndFigures) {
  const ProgramResult result = videos({"--count", "2", "--save", (folder_ / "sheets").string()});
  std::map<std::string, Json> rows;
  Json settings, generation, meters;
  for (const Json& line : result.json_lines()) {
    if (line.contains("row")) rows[line["row"]] = line;
    if (line.contains("settings")) settings = line["settings"];
    if (line.contains("painting")) generation = line["painting"];
    if (line.contains("meters")) meters = line["meters"];
  }
  ASSERT_EQ(rows.size(), 6u) << result.out;
  const Json& ceiling = rows["val true videos (ceiling)"];
  EXPECT_EQ(ceiling["clips"], 2);
  EXPECT_EQ(ceiling["found"]["mean"], 1.0);
  EXPECT_EQ(ceiling["motion"]["mean"], 1.0);
  EXPECT_EQ(ceiling["kind"]["mean"], 1.0);
  EXPECT_GE(ceiling["colour"]["mean"].get<double>(), 0.8);
  const Json& still = rows["val true videos, one frame throughout (floor)"];
  EXPECT_EQ(still["found"]["mean"], 1.0);
  EXPECT_EQ(still["scene"]["mean"], 1.0) << "the scorer reads true first frames";
  EXPECT_LE(still["motion"]["mean"].get<double>(), 0.5) << "what does not move is no motion";
  EXPECT_EQ(still["pixel_change"]["mean"], 0.0);
  EXPECT_EQ(still["last_as_first_scene"]["mean"], 1.0);
  EXPECT_EQ(still["last_as_first_scene"]["asked"], 1) << "not under a circling camera";
  const Json& generated = rows["val prompts"];  // random weights
  EXPECT_LT(generated["scene"]["mean"].get<double>(), 0.2);
  EXPECT_LT(generated["motion"]["mean"].get<double>(), 0.6);
  EXPECT_EQ(generated["psnr_db"]["asked"], 0);
  EXPECT_GT(rows["val true videos through the tokenizer"]["psnr_db"]["mean"].get<double>(), 1.0);
  EXPECT_LT(rows["val true videos, other captions (floor)"]["scene"]["mean"].get<double>(), 0.2);
  EXPECT_EQ(settings["model"], "test:clip");
  EXPECT_EQ(settings["judge"], "tabletop-judge");
  EXPECT_EQ(settings["frames"], 16);
  EXPECT_EQ(settings["first_frames"], 0);
  EXPECT_EQ(generation["failed"], 0);
  EXPECT_GE(generation["tokens_per_pass"]["mean"].get<double>(), 1.0);
  EXPECT_GT(generation["entropy"]["mean"].get<double>(), 0.0);
  EXPECT_EQ(generation["passes"]["asked"], 2);
  EXPECT_GT(meters["passes"].get<int>(), 0);
  EXPECT_NE(result.err.find("| val prompts |"), std::string::npos);
  EXPECT_NE(result.err.find("tokens a pass"), std::string::npos);

  const Image sheet = read_own_png(folder_ / "sheets" / "val-1.png");
  EXPECT_EQ(sheet.width, 16 * (24 + 2) + 2);  // frames of test:clip across, videos down
  EXPECT_EQ(sheet.height, 2 * (16 + 2) + 2);
  EXPECT_EQ(digital_source_type(read_png_texts(folder_ / "sheets" / "val-1.png").xmp),
            "trainedAlgorithmicMedia");
  EXPECT_NE(
      videos({"--count", "2", "--save", (folder_ / "sheets").string()}, 6).err.find("--overwrite"),
      std::string::npos);
}

TEST_F(EvalVideos, EqualSeedsGiveEqualLines) {
  const std::vector<std::string> few = {"--count", "1", "--frames", "8"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), few.begin(), few.end());
    return videos(more).out;
  };
  const std::string first = with({"-t", "1"});
  EXPECT_EQ(first, with({"-t", "3"}));
  EXPECT_NE(first, with({"--scene-seed", "5"}));
  EXPECT_NE(first, with({"-s", "2"}));
}

TEST_F(EvalVideos, FirstFramesAreGivenAndMarkedApart) {
  const ProgramResult result = videos({"--count", "1", "--frames", "8", "--first-frames", "4"});
  for (const Json& line : result.json_lines()) {
    if (!line.contains("row")) continue;
    EXPECT_EQ(line["order"]["asked"], 0) << "asked of the first frame alone";
    const std::string name = line["row"];
    if (name != "val prompts" && name != "val true videos through the tokenizer") continue;
    EXPECT_EQ(line["given_psnr_db"]["asked"], 1) << name;
    EXPECT_EQ(line["psnr_db"]["asked"], 1) << name;
  }
}

TEST_F(EvalVideos, BadRequests) {
  const struct {
    std::vector<std::string> arguments;
    int code;
    std::string word;
  } cases[] = {
      {{"--count", "0"}, 2, "--count"},
      {{"--count", "1001"}, 2, "--count"},
      {{"--no-such-flag"}, 2, "--no-such-flag"},
      {{"-m", "tabletop-janus"}, 2, "E_MODEL_PICTURES"},
      {{"-m", "test:cosmos"}, 2, "from captions"},
      {{"-m", "no-such-model"}, 4, "no-such-model"},
      {{"--judge", "tabletop-janus"}, 4, "describes"},
      {{"--sheet", "a.png"}, 2, "--sheet"},
      {{"--frames", "1"}, 2, "--frames"},
      {{"--frames", "17"}, 2, "--frames"},
      {{"--first-frames", "3"}, 2, "multiple of 4"},
      {{"--first-frames", "16"}, 2, "at most 12"},
      {{"--frames", "8", "--first-frames", "8"}, 2, "at most 4"},
      {{"--save", "/proc/nowhere"}, 6, "/proc/nowhere"},
      {{"--decode", "rows"}, 2, "E_DECODE"},
  };
  for (const auto& bad : cases) {
    std::vector<std::string> args = {"eval", "clips", "--json"};
    const bool model = std::count(bad.arguments.begin(), bad.arguments.end(), "-m") > 0;
    if (!model) args.insert(args.end(), {"-m", "test:clip"});
    args.insert(args.end(), bad.arguments.begin(), bad.arguments.end());
    const ProgramResult result = run(args);
    EXPECT_EQ(result.exit_code, bad.code) << result.err;
    EXPECT_NE((result.out + result.err).find(bad.word), std::string::npos) << result.err;
    EXPECT_EQ(result.error_lines(), 1u) << result.err;
  }
  const ProgramResult scenes = run({"eval", "scenes", "--save", "x"});
  EXPECT_EQ(scenes.exit_code, 2);
  EXPECT_NE(scenes.err.find("--save"), std::string::npos) << scenes.err;
}

}  // namespace
}  // namespace tessera::eval_videos_cli_test
