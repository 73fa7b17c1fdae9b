// `tessera-lab eval scenes` with the bundled model and few images: what it reports, that batches
// and threads do not show in the figures, and how bad requests end.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/run_shell.h"
#include "vision/image/png.h"

namespace tessera::eval_cli_test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

ShellOutcome tessera_eval(const std::string& arguments, const std::string& errors = "2>/dev/null") {
  return run_shell(TESSERA_BINARY_DIR "/bin/tessera-lab eval scenes " + arguments + " " + errors);
}

fs::path scratch(const std::string& name) {
  return fs::path(::testing::TempDir()) / ("eval_cli_" + std::to_string(::getpid()) + "_" + name);
}

TEST(EvalCli, ReportsRowsCeilingAndFloor) {
  const fs::path sheet = scratch("sheet.png");
  const ShellOutcome outcome = tessera_eval(
      "--json --count 3 --ceiling 60 --reconstructions 4 --floor 2 --columns 2 --batch-size 3 "
      "--sheet '" +
      sheet.string() + "'");
  ASSERT_EQ(outcome.code, 0) << outcome.out;
  std::map<std::string, json> rows;
  std::map<std::string, json> figures;
  json settings;
  std::istringstream lines(outcome.out);
  for (std::string text; std::getline(lines, text);) {
    const json line = json::parse(text);
    if (line.contains("row")) rows[line["row"]] = line;
    if (line.contains("figure")) figures[line["figure"]] = line;
    if (line.contains("settings")) settings = line["settings"];
  }
  ASSERT_TRUE(rows.contains("true renders (ceiling)"));
  EXPECT_EQ(rows["true renders (ceiling)"]["pictures"], 60);
  EXPECT_GE(rows["true renders (ceiling)"]["scene"]["mean"].get<double>(), 0.95);
  ASSERT_TRUE(rows.contains("holdout true renders (ceiling)"));
  EXPECT_GE(rows["holdout true renders (ceiling)"]["scene"]["mean"].get<double>(), 0.7);
  EXPECT_EQ(rows["tokenizer reconstructions"]["pictures"], 4);
  EXPECT_EQ(rows["val prompts"]["pictures"], 3);
  EXPECT_EQ(rows["holdout prompts"]["pictures"], 3);
  const json& floor = rows["val prompts, untrained model (floor)"];
  EXPECT_EQ(floor["pictures"], 2);
  EXPECT_EQ(floor["scene"]["mean"].get<double>(), 0.0);
  EXPECT_LE(figures["mismatched_accepted"]["mean"].get<double>(), 0.02);
  EXPECT_EQ(figures["mismatched_accepted"]["asked"], 60);
  EXPECT_GT(figures["psnr_db"]["mean"].get<double>(), 25.0);
  EXPECT_LT(figures["psnr_db"]["mean"].get<double>(), 50.0);
  EXPECT_EQ(settings["model"], "tabletop-janus");
  EXPECT_EQ(settings["judge"], "tabletop-llava");
  EXPECT_EQ(settings["prompts"], 3);

  const Image image = read_own_png(sheet);
  EXPECT_EQ(image.width, 2 * 64 + 3 * 2);
  EXPECT_EQ(image.height, 2 * 64 + 3 * 2);
  const PngTexts texts = read_png_texts(sheet);
  ASSERT_FALSE(texts.texts.empty());
  EXPECT_EQ(std::count(texts.texts[0].text.begin(), texts.texts[0].text.end(), '\n'), 3);
  EXPECT_EQ(digital_source_type(texts.xmp), "trainedAlgorithmicMedia");
  fs::remove(sheet);
}

TEST(EvalCli, BatchesAndThreadsDoNotShow) {
  const std::string same = "--json --split val --count 3 --ceiling 0 --reconstructions 2 --floor 0";
  const ShellOutcome first = tessera_eval(same + " --batch-size 1 -t 1");
  ASSERT_EQ(first.code, 0);
  EXPECT_EQ(first.out, tessera_eval(same + " --batch-size 3 -t 3").out);
  EXPECT_NE(first.out, tessera_eval(same + " --scene-seed 5 -t 1").out);
}

TEST(EvalCli, AnotherScorer) {
  const std::string same =
      "--json --split val --count 1 --ceiling 40 --reconstructions 0 --floor 0 --judge ";
  const ShellOutcome by_name = tessera_eval(same + "tabletop-judge");
  ASSERT_EQ(by_name.code, 0);
  EXPECT_NE(by_name.out.find("\"judge\":\"tabletop-judge\""), std::string::npos);
  const ShellOutcome by_folder =
      tessera_eval(same + TESSERA_SOURCE_DIR "/assets/models/tabletop-judge");
  EXPECT_EQ(by_name.out, by_folder.out);
}

TEST(EvalCli, BadRequests) {
  const struct {
    std::string arguments;
    int code;
    std::string word;
  } cases[] = {
      {"-m test:tiny --judge tabletop-judge", 2, "32x32"},
      {"-m no-such-model", 4, "no-such-model"},
      {"--judge /nowhere", 4, "/nowhere"},
      {"--judge tabletop-janus", 4, "describes"},
      {"--count 0", 2, "--count"},
      {"--split test", 2, "--split"},
      {"--top-p 2", 2, "--top-p"},
      {"--sheet /proc/nowhere/a.png", 6, "/proc/nowhere"},
  };
  for (const auto& bad : cases) {
    const ShellOutcome outcome = tessera_eval(bad.arguments, "2>&1");
    EXPECT_EQ(outcome.code, bad.code) << outcome.out;
    EXPECT_NE(outcome.out.find(bad.word), std::string::npos) << outcome.out;
    EXPECT_EQ(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 1) << outcome.out;
  }
}

}  // namespace
}  // namespace tessera::eval_cli_test
