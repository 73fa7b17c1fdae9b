// `generate --expand-prompt`: a text model writes the prompt, and the image says so.
#include "apps/runtime/prompt_expansion.h"
#include "engine/core/io.h"
#include "engine/core/json.h"
#include "tests/integration/cli/program.h"

namespace tessera::cli_expand_test {
namespace {

using Json = nlohmann::ordered_json;

const std::string kTexts =
    std::string(TESSERA_SOURCE_DIR) + "/tests/golden/gguf_text/qwen2_f16.gguf";

class CliExpand : public ProgramTest {
 protected:
  std::string at(const char* name) const { return (folder_ / name).string(); }
  Json facts(const char* name) {
    return Json::parse(run({"metadata", at(name), "--json"}).out).at("facts");
  }
};

TEST_F(CliExpand, RecordHoldsBothPrompts) {
  const ProgramResult image = run({"generate", "-p", "a red cube", "--expand-prompt", kTexts, "-s",
                                   "3", "--json", "-o", at("long.png")});
  ASSERT_EQ(image.exit_code, 0) << image.err;
  const ProgramResult answer =
      run({"complete", kTexts, "--chat", "-p", expansion_question("a red cube"), "--max-tokens",
           "160", "--json"});
  ASSERT_EQ(answer.exit_code, 0) << answer.err;
  const std::string expected =
      expansion_of(answer.json_lines().at(0).at("text").get<std::string>(), false);
  EXPECT_EQ(image.json_lines().at(0).at("prompt"), expected);
  const Json recorded = facts("long.png");
  EXPECT_EQ(recorded.at("prompt"), expected);
  EXPECT_EQ(recorded.at("expanded_from"), "a red cube");
  EXPECT_EQ(recorded.at("expanded_by"), "qwen2_f16.gguf");

  // The prompt as it became makes the same image, with the text model and without.
  const ProgramResult again =
      run({"generate", "--from-image", at("long.png"), "-o", at("again.png")});
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(read_file(at("again.png"), 1 << 24), read_file(at("long.png"), 1 << 24));
  const ProgramResult anew = run({"generate", "--from-image", at("long.png"), "--expand-prompt",
                                  kTexts, "-o", at("anew.png")});
  ASSERT_EQ(anew.exit_code, 0) << anew.err;
  EXPECT_EQ(read_file(at("anew.png"), 1 << 24), read_file(at("long.png"), 1 << 24));
}

TEST_F(CliExpand, RefusalsComeBeforeAnyImage) {
  const auto refused = [&](const std::vector<std::string>& more, int code, const char* part) {
    std::vector<std::string> args = {"generate", "-o", at("no.png")};
    args.insert(args.end(), more.begin(), more.end());
    const ProgramResult result = run(args);
    EXPECT_EQ(result.exit_code, code) << result.err;
    EXPECT_NE(result.err.find(part), std::string::npos) << result.err;
    EXPECT_FALSE(std::filesystem::exists(at("no.png")));
  };
  const std::string folder = std::string(TESSERA_SOURCE_DIR) + "/tests/golden/gguf_text/";
  refused({"-p", "a", "--expand-prompt", folder + "llama_f32.gguf"}, 2, "chat template");
  refused({"-p", "a", "--expand-prompt", "no-such.gguf"}, 4, "no-such.gguf");
  refused({"-p", "a", "--expand-prompt", "tabletop-llava"}, 4, "model_type");
}

}  // namespace
}  // namespace tessera::cli_expand_test
