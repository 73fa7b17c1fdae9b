// `tessera quantize` as people run it: copies of the bundled models generate and describe as the
// models do with --dtype of the same type; text models become files; reports and refusals.
#include "tests/integration/cli/program.h"

namespace tessera::cli_quantize_test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

const fs::path kSource = TESSERA_SOURCE_DIR;
const std::string kPrompt = "a large red shiny sphere and a small blue matte cube on a gray floor";

class CliQuantize : public ProgramTest {
 protected:
  // The copy in a folder of the model's own name, which images record.
  std::string copy_of(const std::string& model, const std::string& type) {
    const std::string output = (folder_ / type / model).string();
    fs::create_directory(folder_ / type);
    const ProgramResult result =
        run({"quantize", "-m", model, "-o", output, "--type", type, "--json"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const Json line = result.json_lines().at(0);
    EXPECT_EQ(line.at("path"), output);
    EXPECT_LT(line.at("bytes_after"), line.at("bytes_before"));
    EXPECT_TRUE(line.at("types").contains(type == "q8" ? "Q8_0" : "Q4_0")) << line;
    return output;
  }
  std::string bytes_of(std::vector<std::string> args, const char* name) {
    args.insert(args.end(), {"-o", name, "--overwrite"});
    const ProgramResult result = run(args);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return get_file(folder_ / name);
  }
};

TEST_F(CliQuantize, GeneratedImagesAreThoseOfTheModelInThatType) {
  for (const char* type : {"q8", "q4"}) {
    const std::string copy = copy_of("tabletop-janus", type);
    EXPECT_TRUE(fs::exists(fs::path(copy) / "guesses.safetensors"));
    EXPECT_FALSE(fs::exists(fs::path(copy) / "model.safetensors"));
    const std::string wanted =
        bytes_of({"generate", "-m", "tabletop-janus", "--dtype", type, "-p", kPrompt, "-s", "7"},
                 "wanted.png");
    ASSERT_GT(wanted.size(), 1000u);
    // Without a flag the copy is kept as it is stored.
    EXPECT_EQ(bytes_of({"generate", "-m", copy, "-p", kPrompt, "-s", "7"}, "own.png"), wanted);
    EXPECT_EQ(bytes_of({"generate", "-m", copy, "-p", kPrompt, "-s", "7", "--dtype", type,
                        "--decode", "gumbel"},
                       "own.png")
                  .size(),
              bytes_of({"generate", "-m", "tabletop-janus", "-p", kPrompt, "-s", "7", "--dtype",
                        type, "--decode", "gumbel"},
                       "other.png")
                  .size());
  }
}

TEST_F(CliQuantize, CaptionsAreThoseOfTheModelInThatType) {
  bytes_of({"generate", "-p", kPrompt, "-s", "7"}, "photo.png");
  for (const char* type : {"q8", "q4"}) {
    const std::string copy = copy_of("tabletop-llava", type);
    const auto caption = [&](const std::string& model, std::vector<std::string> more) {
      std::vector<std::string> args = {"caption", "-m", model, "photo.png", "--json"};
      args.insert(args.end(), more.begin(), more.end());
      const ProgramResult result = run(args);
      EXPECT_EQ(result.exit_code, 0) << result.err;
      return result.json_lines().at(0).at("caption").get<std::string>();
    };
    const std::string wanted = caption("tabletop-llava", {"--dtype", type});
    EXPECT_FALSE(wanted.empty());
    EXPECT_EQ(caption(copy, {}), wanted);
  }
}

TEST_F(CliQuantize, TextModelsBecomeFilesThatAreCompleted) {
  const std::string model = (kSource / "tests/golden/gguf_text/llama_f32").string();
  const ProgramResult made = run(
      {"quantize", "-m", model, "-o", "a.gguf", "--type", "q4", "--keep", "head=f16,table=f32"});
  EXPECT_EQ(made.exit_code, 0) << made.err;
  EXPECT_TRUE(made.out.starts_with("a.gguf: ")) << made.out;
  EXPECT_NE(made.out.find("14 tensors Q4_0"), std::string::npos) << made.out;
  EXPECT_NE(made.out.find("1 tensors F16"), std::string::npos) << made.out;
  const ProgramResult text = run({"complete", "a.gguf", "-p", "The cat", "--max-tokens", "8"});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  const ProgramResult progress =
      run({"quantize", "-m", model, "-o", "b.gguf", "--type", "f16", "--progress", "json"});
  EXPECT_NE(progress.err.find("\"bytes_done\""), std::string::npos) << progress.err;
}

TEST_F(CliQuantize, RefusalsNameFlagAndFile) {
  const auto refused = [&](std::vector<std::string> more, const char* part) {
    std::vector<std::string> args = {"quantize", "-m", "tabletop-janus"};
    args.insert(args.end(), more.begin(), more.end());
    const ProgramResult result = run(args);
    EXPECT_EQ(result.exit_code, 2) << part;
    EXPECT_NE(result.err.find(part), std::string::npos) << result.err;
  };
  refused({"-o", "copy"}, "--type");
  refused({"-o", "copy", "--type", "q3"}, "--type");
  refused({"-o", "copy", "--type", "q8", "--keep", "tail=f16"}, "--keep");
  refused({"-o", "copy.gguf", "--type", "q8"}, "--output");
  fs::create_directory(folder_ / "mine");
  put_file(folder_ / "mine/file", "a person's");
  refused({"-o", "mine", "--type", "q8"}, "--force");
  refused({"-o", "mine", "--type", "q8", "--force"}, "mine");
  EXPECT_EQ(get_file(folder_ / "mine/file"), "a person's");
  const std::string copy = copy_of("tabletop-janus", "q8");
  const ProgramResult again = run({"quantize", "-m", copy, "-o", "copy", "--type", "q4"});
  EXPECT_EQ(again.exit_code, 2);
  EXPECT_NE(again.err.find("--requantize"), std::string::npos) << again.err;
  EXPECT_FALSE(fs::exists(folder_ / "copy"));
  EXPECT_EQ(run({"quantize", "-m", copy, "-o", "copy", "--type", "q4", "--requantize"}).exit_code,
            0);
  EXPECT_EQ(
      run({"quantize", "-m", "tabletop-janus", "-o", "copy", "--type", "q8", "--force"}).exit_code,
      0);
}

}  // namespace
}  // namespace tessera::cli_quantize_test
