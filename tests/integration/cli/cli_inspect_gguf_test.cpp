// `tessera inspect FILE.gguf`: what a file says, what it can be used for and takes, key by key.
#include <algorithm>

#include "engine/core/json.h"
#include "tests/integration/cli/program.h"
#include "tests/support/gguf_builder.h"

namespace tessera::cli_inspect_gguf_test {
namespace {

using Json = nlohmann::ordered_json;

const std::filesystem::path kGolden = std::filesystem::path(TESSERA_SOURCE_DIR) / "tests/golden";

class CliInspectGguf : public ProgramTest {
 protected:
  std::vector<Json> inspect(const std::filesystem::path& file, std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"inspect", file.string(), "--json"});
    const ProgramResult result = run(more);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const auto lines = result.json_lines();
    return {lines.begin(), lines.end()};
  }
};

TEST_F(CliInspectGguf, SaysWhatTheFileIs) {
  const auto part = kGolden / "gguf_text/llama3_q8-00001-of-00003.gguf";
  const Json out = inspect(part, {"--memory"}).at(0);
  EXPECT_EQ(out.at("architecture"), "llama");
  EXPECT_EQ(out.at("files"), 3);
  EXPECT_EQ(out.at("file_bytes"), 42368 + 10688 + 6912);
  EXPECT_EQ(out.at("context"), 512);
  EXPECT_EQ(out.at("layers"), 2);
  EXPECT_EQ(out.at("tokenizer").at("model"), "llama");
  EXPECT_EQ(out.at("tokenizer").at("tokens"), out.at("vocab"));
  EXPECT_EQ(out.at("chat_templates"), Json::array());
  EXPECT_EQ(out.at("commands"), Json::array({"complete"}));
  EXPECT_EQ(out.at("stored_as"), "file");
  EXPECT_EQ(out.at("types").at("Q8_0").at("tensors"), 16);  // tables, heads and seven a layer
  EXPECT_GT(out.at("memory").at("f32").at("language"), out.at("memory").at("q8").at("language"));
  EXPECT_GT(out.at("memory").at("q8").at("language"), out.at("memory").at("q4").at("language"));
  EXPECT_LT(out.at("memory").at("file").at("language"), out.at("memory").at("q8").at("language"));
  const Json chat = inspect(kGolden / "gguf_text/qwen2_f16.gguf").at(0);
  EXPECT_EQ(chat.at("chat_templates"), Json::array({"default"}));
  EXPECT_TRUE(chat.at("memory").at("bf16").is_number());
}

TEST_F(CliInspectGguf, AccountsForEveryKeyAndTensor) {
  const auto file = kGolden / "gguf_text/qwen2_f16.gguf";
  std::map<std::string, std::string> uses;
  std::size_t tensors = 0;
  for (const Json& line : inspect(file, {"--folder", "--tensors"})) {
    if (line.contains("key")) uses[line.at("key")] = line.at("use");
    if (line.contains("tensor")) {
      ++tensors;
      EXPECT_TRUE(line.at("type") == "F16" || line.at("type") == "F32");
    }
  }
  EXPECT_EQ(tensors, 27u);
  EXPECT_EQ(uses.at("qwen2.block_count"), "used");
  EXPECT_EQ(uses.at("tokenizer.ggml.tokens"), "used");
  EXPECT_EQ(uses.at("tokenizer.chat_template"), "used");
  EXPECT_EQ(uses.at("general.architecture"), "used");
  for (const auto& [key, use] : uses) EXPECT_NE(use, "unknown") << key;
}

TEST_F(CliInspectGguf, ShowsFilesThatItCannotRun) {
  std::string bytes = get_file(kGolden / "gguf_text/llama_f32.gguf");
  const std::string own = gguf_key("general.architecture", 8, gguf_text("llama"));
  bytes.replace(bytes.find(own), own.size(),
                gguf_key("general.architecture", 8, gguf_text("mamba")));
  put_file(folder_ / "other.gguf", bytes);
  const std::vector<Json> lines = inspect(folder_ / "other.gguf", {"--folder"});
  EXPECT_EQ(lines[0].at("architecture"), "mamba");
  EXPECT_EQ(lines[0].at("commands"), Json::array());
  EXPECT_NE(lines[0].at("missing").get<std::string>().find("nobody here knows"), std::string::npos);
  EXPECT_NE(lines[0].at("problem").get<std::string>().find("mamba"), std::string::npos);
  EXPECT_TRUE(lines[0].at("types").contains("F32"));
  EXPECT_GT(lines.size(), 20u);
  put_file(folder_ / "cut.gguf", bytes.substr(0, 1000));
  EXPECT_EQ(run({"inspect", (folder_ / "cut.gguf").string()}).exit_code, 4);
}

TEST_F(CliInspectGguf, ShowsPairs) {
  const auto model = kGolden / "gguf_vision/smolvlm/model.gguf";
  const std::vector<Json> lines = inspect(model, {"--folder", "--tensors"});
  EXPECT_EQ(lines[0].at("commands"), Json::array({"complete", "caption"}));
  EXPECT_EQ(lines[0].at("projector"), "mmproj-model.gguf");
  EXPECT_EQ(lines[0].at("describes").at("family"), "smolvlm");
  EXPECT_EQ(lines[0].at("describes").at("encoder_layers"), 3);
  std::map<std::string, std::string> uses;
  for (const Json& line : lines) {
    if (line.contains("key")) uses[line.at("key")] = line.at("use");
  }
  EXPECT_EQ(std::count_if(lines.begin(), lines.end(),
                          [](const Json& line) { return line.contains("tensor"); }),
            75);  // of both files
  EXPECT_EQ(uses.at("clip.projector_type"), "used");
  EXPECT_EQ(uses.at("llama.block_count"), "used");
  EXPECT_EQ(uses.at("tokenizer.ggml.tokens"), "used");
}

// A pair that does not fit is part of what is shown; a folder has its encoder.
TEST_F(CliInspectGguf, ShowsPairsThatDoNotFit) {
  const auto model = kGolden / "gguf_vision/smolvlm/model.gguf";
  const auto other = kGolden / "gguf_vision/qwen2-vl/mmproj-model.gguf";
  const Json out = inspect(model, {"--mmproj", other.string()}).at(0);
  EXPECT_EQ(out.at("commands"), Json::array({"complete"}));
  EXPECT_NE(out.at("projector_problem").get<std::string>().find("qwen2vl_merger"),
            std::string::npos);
  const Json alone = inspect(other).at(0);
  EXPECT_EQ(alone.at("architecture"), "clip");
  EXPECT_EQ(alone.at("commands"), Json::array());
  EXPECT_NE(alone.at("missing").get<std::string>().find("--mmproj"), std::string::npos);
  EXPECT_EQ(run({"inspect", "tabletop-llava", "--mmproj", other.string()}).exit_code, 2);
}

TEST_F(CliInspectGguf, CaptionTakesPairs) {
  const auto pair = kGolden / "gguf_vision/smolvlm";
  const std::string photo = (kGolden / "jobs/pictures/p1.png").string();
  const auto caption = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"caption", "--image", photo, "--json", "--max-tokens", "8", "-m"});
    const ProgramResult result = run(more);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.json_lines().at(0).at("caption").get<std::string>();
  };
  const std::string model = (pair / "model.gguf").string();
  const std::string text = caption({model});
  EXPECT_FALSE(text.empty());
  EXPECT_EQ(caption({model, "--mmproj", (pair / "mmproj-model.gguf").string()}), text);
  std::filesystem::copy_file(pair / "model.gguf", folder_ / "alone.gguf");
  const ProgramResult alone =
      run({"caption", "--image", photo, "-m", (folder_ / "alone.gguf").string()});
  EXPECT_EQ(alone.exit_code, 4);
  EXPECT_NE(alone.err.find("--mmproj FILE"), std::string::npos) << alone.err;
}

// A folder of LM Studio with both files is one model that writes and describes.
TEST_F(CliInspectGguf, ModelsListsPairs) {
  const auto folder = home_ / ".lmstudio/models/somebody/eyes-GGUF";
  std::filesystem::create_directories(folder);
  for (const char* file : {"model.gguf", "mmproj-model.gguf"}) {
    std::filesystem::copy_file(kGolden / "gguf_vision/smolvlm" / file, folder / file);
  }
  const ProgramResult result = run({"models", "--json"});
  int found = 0;
  for (const Json& line : result.json_lines()) {
    if (line.at("origin") != "lmstudio") continue;
    ++found;
    EXPECT_TRUE(line.at("describes").get<bool>() && line.at("texts").get<bool>()) << line;
    EXPECT_GT(line.at("file_bytes"), std::filesystem::file_size(folder / "model.gguf"));
  }
  EXPECT_EQ(found, 1);
  const std::string photo = (kGolden / "jobs/pictures/p1.png").string();
  EXPECT_EQ(run({"caption", "--image", photo, "-m", "somebody/eyes-GGUF"}).exit_code, 0);
}

}  // namespace
}  // namespace tessera::cli_inspect_gguf_test
