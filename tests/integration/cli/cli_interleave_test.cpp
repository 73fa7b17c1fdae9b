// `tessera generate --interleave` on the seeded model of texts and images.
#include "tests/golden/chameleon/chameleon_folder.h"
#include "tests/integration/cli/program.h"

namespace tessera::cli_interleave_test {
namespace {

using Lines = std::vector<nlohmann::ordered_json>;

class CliInterleave : public ProgramTest {
 protected:
  CliInterleave() { write_chameleon(model_, "plain", chameleon_config("plain")); }

  // Six answers drawn from seed 7 on: some have an image.
  ProgramResult answers(std::vector<std::string> more) {
    std::vector<std::string> args = {
        "generate", "--interleave", "-m", model_.path(),  "-s", "7",        "--temp",
        "1",        "-b",           "6",  "--max-tokens", "24", "--device", "cpu"};
    args.insert(args.end(), more.begin(), more.end());
    return run(args);
  }
  std::string pixels_of(const std::string& name) const { return get_file(folder_ / name); }
  ProgramResult refused(std::vector<std::string> more) {
    std::vector<std::string> args = {"generate", "--interleave", "-m", model_.path()};
    args.insert(args.end(), more.begin(), more.end());
    ProgramResult result = run(args);
    EXPECT_EQ(result.exit_code, 2) << result.err;
    return result;
  }

  TempFolder model_;
};

TEST_F(CliInterleave, AnswersAreInOrderHoweverManyAreWrittenAtOnce) {
  const ProgramResult alone = answers({"-p", "a red", "-o", "a-%d.png"});
  ASSERT_EQ(alone.exit_code, 0) << alone.err;
  const ProgramResult together =
      answers({"-p", "a red", "-o", "a-%d.png", "--overwrite", "--batch-size", "4"});
  EXPECT_EQ(together.out, alone.out);
  EXPECT_NE(alone.out.find("[a-"), std::string::npos) << alone.out;

  const Lines lines =
      answers({"-p", "a red", "-o", "j-%d.png", "--batch-size", "4", "--json"}).json_lines();
  ASSERT_EQ(lines.size(), 6u);
  std::size_t images = 0;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i]["seed"], 7 + i);
    for (const auto& part : lines[i]["parts"]) {
      const std::string key = part.contains("image") ? "image" : "text";
      const std::string value = part[key];
      if (key == "text") {
        EXPECT_NE(alone.out.find(value), std::string::npos) << value;
        continue;
      }
      ++images;
      EXPECT_EQ(pixels_of(value), pixels_of("a" + value.substr(1)));
    }
  }
  EXPECT_GE(images, 2u);
}

TEST_F(CliInterleave, AnImageLeadsToItsAnswerAgain) {
  const Lines lines = answers({"-p", "a red", "-o", "a-%d.png", "--decode", "gumbel", "--window",
                               "5", "--kv", "q8", "--json"})
                          .json_lines();
  std::string image;
  for (const auto& line : lines) {
    for (const auto& part : line["parts"]) {
      if (image.empty() && part.contains("image")) image = part["image"];
    }
  }
  ASSERT_FALSE(image.empty());
  const ProgramResult again = run({"generate", "--interleave", "-m", model_.path(), "--from-image",
                                   image, "--max-tokens", "24", "-o", "again-%d.png"});
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(pixels_of("again-1.png"), pixels_of(image));

  const ProgramResult single = run({"generate", "-m", model_.path(), "--from-image", image});
  EXPECT_EQ(single.exit_code, 2);
  EXPECT_NE(single.err.find("image 1 of an answer"), std::string::npos) << single.err;
  const ProgramResult drawn = run({"generate", "-m", model_.path(), "-p", "red", "-o", "red.png"});
  ASSERT_EQ(drawn.exit_code, 0) << drawn.err;
  EXPECT_NE(refused({"--from-image", "red.png"}).err.find("--interleave"), std::string::npos);
}

TEST_F(CliInterleave, WhatItDoesNotDoIsRefusedByName) {
  const std::vector<std::vector<std::string>> flags = {
      {"--sheet", "s.png"},      {"--preview", "p.png"},  {"--negative-prompt", "x"},
      {"--expand-prompt", "x"},  {"--text-encoder", "."}, {"--decode", "rows"},
      {"--max-tokens", "10000"}, {"--size", "12x12"},     {"--batch-count", "30000"}};
  for (const std::vector<std::string>& one : flags) {
    std::vector<std::string> args = {"-p", "x", "--max-tokens", "24"};
    if (one[0] == "--max-tokens") args.resize(2);
    args.insert(args.end(), one.begin(), one.end());
    EXPECT_NE(refused(args).err.find(one[0]), std::string::npos) << one[0];
  }
  const ProgramResult without = run({"generate", "-p", "x", "--max-images", "2"});
  EXPECT_EQ(without.exit_code, 2);
  EXPECT_NE(without.err.find("--max-images"), std::string::npos) << without.err;
}

}  // namespace
}  // namespace tessera::cli_interleave_test
