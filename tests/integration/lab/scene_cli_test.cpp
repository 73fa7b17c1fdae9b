// `tessera-lab scene` as a user calls it: images equal the library's, sets do not depend on how
// they are cut or on threads, and bad requests end with the right code and leave nothing after.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "apps/lab/scene/scene_set.h"
#include "apps/lab/still_life/still_set.h"
#include "tests/support/run_shell.h"
#include "tests/support/things_pack.h"
#include "vision/image/png.h"

namespace tessera::scene_cli_test {
namespace {

namespace fs = std::filesystem;

// stdout and stderr
ShellOutcome tessera_scene(const std::string& arguments) {
  return run_shell(TESSERA_BINARY_DIR "/bin/tessera-lab scene " + arguments + " 2>&1");
}

std::string file_text(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class SceneCli : public ::testing::Test {
 protected:
  void SetUp() override {
    const ::testing::TestInfo* info = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(::testing::TempDir()) /
              ("scene_cli_" + std::string(info->name()) + std::to_string(::getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string at(const std::string& name) const { return "'" + (folder_ / name).string() + "'"; }
  std::size_t files() const {
    std::size_t count = 0;
    for (const auto& entry : fs::recursive_directory_iterator(folder_)) {
      count += entry.is_regular_file() ? 1 : 0;
    }
    return count;
  }
  fs::path folder_;
};

TEST_F(SceneCli, WritesTheSetThatTheLibraryRenders) {
  const ShellOutcome outcome =
      tessera_scene("--count 5 --start 3 --seed 9 --split holdout --size 48 " +
                    ("--json --output-dir " + at("set")));
  ASSERT_EQ(outcome.code, 0) << outcome.out;
  std::istringstream lines(outcome.out);
  const SceneSetRequest request{.seed = 9, .split = SceneSplit::kHoldout, .size = 48};
  int count = 0;
  for (std::string text; std::getline(lines, text); ++count) {
    const nlohmann::json line = nlohmann::json::parse(text);
    const auto index = line.at("index").get<std::uint64_t>();
    EXPECT_EQ(index, static_cast<std::uint64_t>(count + 3));
    const SceneRecord record = make_record(request, index);
    const fs::path path = line.at("path").get<std::string>();
    EXPECT_EQ(read_own_png(path).rgb, record.image.rgb);
    EXPECT_EQ(line.at("width"), 48);
    const std::string json = file_text(fs::path(path).replace_extension(".json"));
    EXPECT_EQ(json, record_to_json(record) + "\n");
    EXPECT_EQ(read_png_texts(path).texts.at(0).text, record.caption);
  }
  EXPECT_EQ(count, 5);
  EXPECT_EQ(files(), 10u);
}

TEST_F(SceneCli, WorldTwoIsTheLibrarysAndItsScenesCanBeReadBack) {
  std::ofstream(folder_ / "small.pack", std::ios::binary) << small_pack();
  const still::Things things = still::read_things(folder_ / "small.pack");
  const std::string flags = "--world 2 --things " + at("small.pack") + " --size 48 ";
  ASSERT_EQ(tessera_scene(flags + "--count 3 --seed 9 --output-dir " + at("set")).code, 0);
  for (std::uint64_t index = 0; index < 3; ++index) {
    const still::Record record = still::make_record({.seed = 9, .size = 48}, things, index);
    const fs::path path = folder_ / "set" / ("scene_000" + std::to_string(index) + ".png");
    EXPECT_EQ(read_own_png(path).rgb, record.image.rgb);
    EXPECT_EQ(file_text(fs::path(path).replace_extension(".json")), still::record_to_json(record) + "\n");
    EXPECT_EQ(read_png_texts(path).texts.at(0).text, record.caption);
    std::ofstream(folder_ / "one.json") << still::to_json(record.scene);
    ASSERT_EQ(tessera_scene(flags + "--overwrite --scene " + at("one.json") + " -o one.png --output-dir " + at(".")).code, 0);
    EXPECT_EQ(read_own_png(folder_ / "one.png").rgb, record.image.rgb);
  }
  EXPECT_EQ(tessera_scene("--world 1 --things " + at("small.pack")).code, 2);
  EXPECT_EQ(tessera_scene("--world 2 --things " + at("one.json")).code, 2);
}

TEST_F(SceneCli, ThreadsAndCutsDoNotShow) {
  ASSERT_EQ(tessera_scene("--count 6 -t 1 --size 32 --output-dir " + at("a")).code, 0);
  ASSERT_EQ(tessera_scene("--count 3 -t 7 --size 32x32 --output-dir " + at("b")).code, 0);
  ASSERT_EQ(tessera_scene("--count 3 --start 3 --size 32 --output-dir " + at("b")).code, 0);
  for (const auto& entry : fs::directory_iterator(folder_ / "a")) {
    EXPECT_EQ(file_text(entry.path()), file_text(folder_ / "b" / entry.path().filename()));
  }
}

TEST_F(SceneCli, SceneFileGivesTheImageItCameFrom) {
  ASSERT_EQ(tessera_scene("--size 64 -o one.png --output-dir " + at("")).code, 0);
  const nlohmann::json record = nlohmann::json::parse(file_text(folder_ / "one.json"));
  std::ofstream(folder_ / "scene.json") << record.at("scene").dump();
  const ShellOutcome again =
      tessera_scene("--size 64 -o two.png --output-dir " + at("") + " --scene " + at("scene.json"));
  ASSERT_EQ(again.code, 0) << again.out;
  EXPECT_EQ(read_own_png(folder_ / "one.png").rgb, read_own_png(folder_ / "two.png").rgb);
  EXPECT_FALSE(nlohmann::json::parse(file_text(folder_ / "two.json")).contains("index"));
}

TEST_F(SceneCli, SheetHoldsAllImages) {
  ASSERT_EQ(tessera_scene("--count 6 --columns 3 --size 32 --sheet " + at("sheet.png")).code, 0);
  const Image sheet = read_own_png(folder_ / "sheet.png");
  EXPECT_EQ(sheet.width, 3 * 32 + 4 * 2);
  EXPECT_EQ(sheet.height, 2 * 32 + 3 * 2);
  EXPECT_EQ(files(), 1u);
  const SceneRecord fifth = make_record({.size = 32}, 4);
  EXPECT_TRUE(
      std::equal(fifth.image.rgb.begin(), fifth.image.rgb.begin() + 96, sheet.at(2 + 34, 2 + 34)));
}

TEST_F(SceneCli, BadRequestsLeaveNothingAfter) {
  std::ofstream(folder_ / "bad.json") << R"({"version":1,"floor":"pink","solids":[]})";
  const std::string to = " --output-dir " + at("") + " ";
  const struct {
    std::string arguments;
    int code;
    std::string word;
  } cases[] = {
      {"--size 5" + to, 2, "--size"},
      {"--size 64x32" + to, 2, "--size"},
      {"--size 64x" + to, 2, "--size"},
      {"--split test" + to, 2, "train|val|holdout"},
      {"--count 0" + to, 2, "--count"},
      {"--seed -1" + to, 2, "--seed"},
      {"--output a%s.png" + to, 2, "--output"},
      {"--output %d%d.png" + to, 2, "--output"},
      {"--output %999d.png" + to, 2, "--output"},
      {"--count 2 --output a.png" + to, 2, "--output"},
      {"--count 5000 --sheet " + at("s.png"), 2, "--sheet"},
      {"--bogus", 2, "--bogus"},
      {"--scene " + at("bad.json") + to, 2, "pink"},
      {"--scene " + at("none.json") + to, 2, "none.json"},
      {"--count 2 --scene " + at("bad.json") + to, 2, "--scene"},
      {"--output-dir /proc/nowhere", 6, "/proc/nowhere"},
  };
  for (const auto& bad : cases) {
    const ShellOutcome outcome = tessera_scene(bad.arguments);
    EXPECT_EQ(outcome.code, bad.code) << bad.arguments << "\n" << outcome.out;
    EXPECT_NE(outcome.out.find(bad.word), std::string::npos) << outcome.out;
    EXPECT_EQ(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 1) << outcome.out;
    EXPECT_EQ(files(), 1u) << bad.arguments;
  }
}

TEST_F(SceneCli, ExistingFilesStayUnlessAsked) {
  const std::string arguments = "--size 32 -o a.png --output-dir " + at("");
  ASSERT_EQ(tessera_scene(arguments).code, 0);
  const std::string before = file_text(folder_ / "a.png");
  EXPECT_EQ(tessera_scene(arguments + " --seed 4").code, 6);
  EXPECT_EQ(file_text(folder_ / "a.png"), before);
  EXPECT_EQ(tessera_scene(arguments + " --seed 4 --overwrite").code, 0);
  EXPECT_NE(file_text(folder_ / "a.png"), before);
}

}  // namespace
}  // namespace tessera::scene_cli_test
