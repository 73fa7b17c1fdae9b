// `tessera generate` with a model that reads a text encoder's rows.
#include "tests/golden/llamagen/text_folder.h"
#include "tests/integration/cli/program.h"

namespace tessera::cli_text_encoder_test {
namespace {

namespace fs = std::filesystem;

class CliTextEncoder : public ProgramTest {
 protected:
  ProgramResult generate(std::vector<std::string> more) {
    std::vector<std::string> args = {"generate", "-m", model_.path(), "--device", "cpu"};
    args.insert(args.end(), more.begin(), more.end());
    return run(args);
  }
  TextFolder model_;
};

TEST_F(CliTextEncoder, AnImageIsGeneratedAgainWithTheEncoderOfItsRecordAlone) {
  const auto first = generate({"-p", "a red cube", "-s", "3", "-o", "first.png"});
  ASSERT_EQ(first.exit_code, 0) << first.err;
  const auto again = generate({"--from-image", "first.png", "-o", "again.png"});
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(get_file(folder_ / "again.png"), get_file(folder_ / "first.png"));

  fs::rename(fs::path(model_.path()) / "t5", fs::path(model_.path()) / "flan-t5-xl");
  const auto other = generate({"--from-image", "first.png", "-o", "other.png"});
  EXPECT_EQ(other.exit_code, 2);
  for (const char* word : {"--from-image", "t5", "flan-t5-xl", "--text-encoder"}) {
    EXPECT_NE(other.err.find(word), std::string::npos) << other.err;
  }
  const auto named = generate({"--from-image", "first.png", "-o", "other.png", "--text-encoder",
                               (fs::path(model_.path()) / "flan-t5-xl").string()});
  EXPECT_EQ(named.exit_code, 0) << named.err;
}

}  // namespace
}  // namespace tessera::cli_text_encoder_test
