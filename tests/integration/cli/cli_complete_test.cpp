// `tessera complete` as people run it: one text, several, JSON lines, chats, and what is refused.
#include "engine/core/json.h"
#include "tests/integration/cli/program.h"
#include "tests/support/folder_corpus.h"

namespace tessera::cli_complete_test {
namespace {

using Json = nlohmann::ordered_json;

const std::filesystem::path kModels =
    std::filesystem::path(TESSERA_SOURCE_DIR) / "tests/golden/gguf_text";

class CliComplete : public ProgramTest {
 protected:
  CliComplete() {
    std::ifstream in(kModels / "texts.json");
    golden_ = Json::parse(in);
  }
  const Json& rows(std::size_t model) const { return golden_[model].at("rows"); }
  std::string path(std::size_t model) const {
    return (kModels / golden_[model].at("file").get<std::string>()).string();
  }
  Json golden_;
};

constexpr std::size_t kLlama = 0, kQwen = 2;

TEST_F(CliComplete, JsonLinesHoldTheTexts) {
  std::vector<std::string> args = {"complete", path(kQwen), "--json", "--max-tokens",
                                   "24",       "--dtype",   "f32"};
  std::vector<std::string> prompts, texts;
  for (const Json& row : rows(kQwen)) {
    if (row.at("chat").get<bool>()) continue;
    args.push_back("-p");
    args.push_back(row.at("prompt"));
    prompts.push_back(row.at("prompt"));
    texts.push_back(row.at("text"));
  }
  const ProgramResult result = run(args);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const auto lines = result.json_lines();
  ASSERT_EQ(lines.size(), prompts.size());
  for (const Json& line : lines) {
    const std::size_t id = line.at("id").get<std::size_t>() - 1;
    EXPECT_EQ(line.at("prompt"), prompts.at(id));
    EXPECT_EQ(line.at("text"), texts.at(id));
    EXPECT_EQ(line.at("tokens"), 24);
    EXPECT_EQ(line.at("ended"), "max-tokens");
    EXPECT_FALSE(line.contains("seed"));
  }
}

TEST_F(CliComplete, ChatsAndPromptFilesAreWritten) {
  std::string jsonl;
  std::vector<std::string> texts;
  for (const Json& row : rows(kQwen)) {
    if (!row.at("chat").get<bool>()) continue;
    jsonl += Json({{"prompt", row.at("prompt")}}).dump() + "\n";
    texts.push_back(row.at("text"));
  }
  ASSERT_EQ(texts.size(), 2u);
  put_file(folder_ / "prompts.jsonl", jsonl);
  const ProgramResult result =
      run({"complete", path(kQwen), "--chat", "--prompt-file", (folder_ / "prompts.jsonl").string(),
           "--max-tokens", "24", "--json"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  for (const Json& line : result.json_lines()) {
    EXPECT_EQ(line.at("text"), texts.at(line.at("id").get<std::size_t>() - 1));
  }
}

// The text's tokens, each with the likeliest; texts are greedy.
TEST_F(CliComplete, LogprobsAreInTheLines) {
  const auto lines = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"complete", path(kLlama), "-p", "The cat sat on", "--max-tokens", "5"});
    const ProgramResult result = run(more);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.json_lines();
  };
  const Json plain = lines({"--json"}).at(0), with = lines({"--json", "--logprobs", "2"}).at(0);
  EXPECT_FALSE(plain.contains("logprobs"));
  EXPECT_EQ(with.at("text"), plain.at("text"));
  const auto ascii = [](std::string text) {  // other bytes are replaced or left out of texts
    std::erase_if(text, [](char c) { return c < ' ' || c > '~'; });
    return text;
  };
  std::string bytes;
  ASSERT_EQ(with.at("logprobs").size(), 5u);
  for (const Json& token : with.at("logprobs")) {
    for (const Json& byte : token.at("bytes")) bytes += static_cast<char>(byte.get<int>());
    ASSERT_EQ(token.at("top_logprobs").size(), 2u);
    EXPECT_EQ(token.at("top_logprobs")[0].at("logprob"), token.at("logprob"));
    EXPECT_LE(token.at("top_logprobs")[1].at("logprob"), token.at("logprob"));
    EXPECT_LT(token.at("logprob"), 0);
  }
  EXPECT_EQ(ascii(bytes), ascii(with.at("text").get<std::string>()));
  EXPECT_FALSE(ascii(bytes).empty());
  EXPECT_TRUE(lines({"--json", "--logprobs", "0"}).at(0).at("logprobs")[0].at("top_logprobs").empty());
  const ProgramResult text = run({"complete", path(kLlama), "-p", "a", "--logprobs", "2"});
  EXPECT_EQ(text.exit_code, 2);
  EXPECT_NE(text.err.find("--logprobs"), std::string::npos) << text.err;
  EXPECT_EQ(run({"complete", path(kLlama), "-p", "a", "--json", "--logprobs", "21"}).exit_code, 2);
}

TEST_F(CliComplete, SeveralTextsComeInOrder) {
  const ProgramResult result =
      run({"complete", path(kLlama), "-p", "a", "-p", "The cat sat on", "--max-tokens", "3"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(result.out.starts_with("--- 1\n")) << result.out;
  EXPECT_NE(result.out.find("\n--- 2\n"), std::string::npos) << result.out;
}

// A text of random bytes is printed as it grows, to its end.
TEST_F(CliComplete, BrokenCharactersHideNothing) {
  const std::vector<std::string> args = {"complete", path(kLlama), "-p",     "The cat sat on",
                                         "-s",       "7",          "--temp", "0.8"};
  std::vector<std::string> as_json = args;
  as_json.push_back("--json");
  const std::string text = run(as_json).json_lines().at(0).at("text");
  std::string last;  // its last four letters in a row
  for (std::size_t at = text.size() - 4; at > text.size() / 2 && last.empty(); --at) {
    const std::string four = text.substr(at, 4);
    if (std::ranges::all_of(four, [](char c) { return c >= 'A' && c <= 'z'; })) last = four;
  }
  ASSERT_FALSE(last.empty()) << text;
  const std::string printed = run(args).out;
  EXPECT_NE(printed.find(last), std::string::npos) << last << " in " << printed;
}

TEST_F(CliComplete, DrawnTextsFollowTheSeed) {
  const auto drawn = [&](const char* seed) {
    return run({"complete", path(kLlama), "-p", "a", "--temp", "1", "-s", seed, "--json",
                "--max-tokens", "12"})
        .json_lines()
        .at(0);
  };
  EXPECT_EQ(drawn("3").at("text"), drawn("3").at("text"));
  EXPECT_NE(drawn("3").at("text"), drawn("4").at("text"));
  EXPECT_EQ(drawn("3").at("seed"), 3);
}

TEST_F(CliComplete, InspectShowsAModelOfTexts) {
  const std::string folder = (kModels / "qwen3_f32").string();
  const ProgramResult result = run({"inspect", folder, "--json", "--tensors"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const std::vector<Json> lines = result.json_lines();
  ASSERT_GT(lines.size(), 10u);
  EXPECT_EQ(lines[0].at("family"), "qwen3");
  EXPECT_TRUE(lines[0].contains("chat_template"));
  EXPECT_TRUE(lines[1].contains("tensor"));
  const ProgramResult memory = run({"inspect", folder, "--memory"});
  EXPECT_EQ(memory.exit_code, 2);
  EXPECT_NE(memory.err.find("--memory"), std::string::npos);
}

// Every key of a folder, and the warnings of a run.
TEST_F(CliComplete, KeysOfAFolderAreAccountedFor) {
  const std::filesystem::path folder = folder_ / "model";
  std::filesystem::create_directories(folder);
  const std::filesystem::path tokenizer =
      std::filesystem::path(TESSERA_SOURCE_DIR) / "tests/golden/text_folders/json_listed";
  for (const char* name : {"tokenizer.json", "tokenizer_config.json"}) {
    std::filesystem::copy_file(tokenizer / name, folder / name);
  }
  const Json config = {{"model_type", "llama"},       {"vocab_size", 2048},
                       {"hidden_size", 16},           {"intermediate_size", 24},
                       {"num_hidden_layers", 1},      {"num_attention_heads", 2},
                       {"attention_dropout", 0.1},    {"is_encoder_decoder", true},
                       {"tie_word_embeddings", true}, {"colour_of_the_box", "blue"}};
  put_file(folder / "config.json", config.dump());
  put_file(folder / "generation_config.json", R"({"temperature": 0.7, "luck": 3})");
  const auto shape = [](std::initializer_list<int> sides) { return Json::array({0, sides}); };
  Json shapes = {{"model.embed_tokens.weight", shape({2048, 16})},
                 {"model.norm.weight", shape({16})}};
  const std::string layer = "model.layers.0.";
  for (const char* name : {"input_layernorm", "post_attention_layernorm"}) {
    shapes[layer + name + ".weight"] = shape({16});
  }
  for (const char* name : {"q_proj", "k_proj", "v_proj", "o_proj"}) {
    shapes[layer + "self_attn." + name + ".weight"] = shape({16, 16});
  }
  shapes[layer + "mlp.gate_proj.weight"] = shapes[layer + "mlp.up_proj.weight"] = shape({24, 16});
  shapes[layer + "mlp.down_proj.weight"] = shape({16, 24});
  put_file(folder / "model.safetensors", folder_weights_file("1", shapes));

  const ProgramResult inspected = run({"inspect", folder.string(), "--folder", "--json"});
  EXPECT_EQ(inspected.exit_code, 0) << inspected.err;
  std::map<std::string, std::string> uses;
  for (const Json& line : inspected.json_lines()) {
    if (!line.contains("key")) continue;
    EXPECT_EQ(line.at("half"), "writing");
    uses[line.at("file").get<std::string>() + " " + line.at("key").get<std::string>()] =
        line.at("use");
  }
  EXPECT_EQ(uses.at("config.json hidden_size"), "used");
  EXPECT_EQ(uses.at("config.json attention_dropout"), "without effect");
  EXPECT_EQ(uses.at("config.json is_encoder_decoder"), "not followed");
  EXPECT_EQ(uses.at("config.json colour_of_the_box"), "unknown");
  EXPECT_EQ(uses.at("generation_config.json temperature"), "without effect");
  EXPECT_EQ(uses.at("generation_config.json luck"), "unknown");

  const ProgramResult written = run({"complete", folder.string(), "-p", "a", "--max-tokens", "2"});
  EXPECT_EQ(written.exit_code, 0) << written.err;
  for (const char* line : {"1 key of config.json is not known: colour_of_the_box",
                           "1 key of config.json is not followed: is_encoder_decoder",
                           "1 key of generation_config.json is not known: luck"}) {
    EXPECT_NE(written.err.find(line), std::string::npos) << written.err;
  }
}

TEST_F(CliComplete, RefusalsNameFlagAndFile) {
  const auto refused = [&](const std::vector<std::string>& args, int code, const char* part) {
    const ProgramResult result = run(args);
    EXPECT_EQ(result.exit_code, code) << part;
    EXPECT_NE(result.err.find(part), std::string::npos) << result.err;
  };
  const std::string model = path(kLlama);
  refused({"complete", model}, 2, "--prompt");
  refused({"complete", model, "-p", "a", "--chat"}, 2, "chat template");
  refused({"complete", model, "-p", "a", "--max-tokens", "512"}, 2, "--max-tokens");
  refused({"complete", model, "-p", "a", "--cfg-scale", "2"}, 2, "--negative-prompt");
  refused({"complete", model, "-p", "a", "--model-draft", path(kQwen)}, 2, "--model-draft");
  refused({"complete", "tabletop-llava", "-p", "a"}, 4, "model_type");
  refused({"complete", "no-such.gguf", "-p", "a"}, 4, "no-such.gguf");
}

}  // namespace
}  // namespace tessera::cli_complete_test
