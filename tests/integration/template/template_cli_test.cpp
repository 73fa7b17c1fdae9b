// `tessera template`, `tessera tokenize`, and whose template `caption` asks by.
#include "tests/integration/caption/caption_program.h"

namespace tessera::template_cli_test {
namespace {

class TemplateCliTest : public CaptionTest {
 protected:
  void SetUp() override {
    CaptionTest::SetUp();
    if (IsSkipped()) return;
    put("photo.png", image(3));
  }

  // The bundled model with another tokenizer_config.json.
  std::string copy_with(const std::string& name, const Json& config) {
    const std::filesystem::path copy = folder_ / name;
    std::filesystem::create_directories(copy);
    for (const auto& entry : std::filesystem::directory_iterator(model_)) {
      const auto file = entry.path().filename();
      if (file != "tokenizer_config.json") {
        std::filesystem::create_symlink(entry.path(), copy / file);
      }
    }
    put_file(copy / "tokenizer_config.json", config.dump());
    return copy.string();
  }
  Json bundled_config() const { return Json::parse(get_file(model_ / "tokenizer_config.json")); }

  std::string answer(std::vector<std::string> more) {
    std::vector<std::string> args = {"caption",      "--image", "photo.png",
                                     "--max-tokens", "12",      "--json"};
    args.insert(args.end(), more.begin(), more.end());
    const ProgramResult result = run(args);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.exit_code == 0 ? result.json_lines().at(0).at("caption").get<std::string>() : "";
  }
  void expect_refused(const std::vector<std::string>& args, int code,
                      const std::vector<std::string>& shown) {
    const ProgramResult result = run(args);
    EXPECT_EQ(result.exit_code, code) << result.err;
    for (const std::string& word : shown) {
      EXPECT_NE(result.err.find(word), std::string::npos) << word << " in " << result.err;
    }
  }
};

// Asks something else after every question.
const char* kAnother =
    "{% for m in messages %}USER: {% for p in m.content %}{% if p.type == 'image' %}<image>\n"
    "{% else %}{{ p.text }}{% endif %}{% endfor %}{% endfor %} ASSISTANT: a cube. USER: "
    "How many objects are there? ASSISTANT:";

TEST_F(TemplateCliTest, AQuestionAndAConversationAreShown) {
  const std::string model = model_.string();
  const ProgramResult question = run({"template", model, "--images", "2", "-p", "A <image>?"});
  EXPECT_EQ(question.out, "USER: <image>\n<image>\nA <image>? ASSISTANT:") << question.err;
  const Json line = run({"template", model, "-p", "A <image>?", "--json"}).json_lines().at(0);
  EXPECT_EQ(line["parts"].dump(),
            R"([{"text":"USER: ","from_data":false},{"text":"A <image>?","from_data":true},)"
            R"({"text":" ASSISTANT:","from_data":false}])");
  put("c.json", R"([{"role":"user","content":"Hi"},{"role":"assistant","content":"Yes?"}])");
  EXPECT_EQ(run({"template", model, "--conversation", "c.json", "--no-generation-prompt"}).out,
            "USER: Hi ASSISTANT: Yes?</s>");
  put("t.jinja", "{{ messages[0].content }}{{ (tools or [])|length }}{{ x }}{{ eos_token }}");
  put("d.json", R"({"messages":[{"role":"user","content":"a"}],"tools":[{}],"x":"y"})");
  EXPECT_EQ(run({"template", model, "--conversation", "d.json", "--chat-template", "t.jinja"}).out,
            "a1y</s>");
}

// A text model in a file gives what its folder gives.
TEST_F(TemplateCliTest, TextModelsInFiles) {
  const std::filesystem::path models =
      std::filesystem::path(TESSERA_SOURCE_DIR) / "tests/golden/gguf_text";
  const std::string folder = (models / "gemma3_f32").string(), file = folder + ".gguf";
  const std::string text = "Hello, world! 12345\n  two spaces";
  const ProgramResult ids = run({"tokenize", file, text});
  EXPECT_EQ(ids.exit_code, 0) << ids.err;
  EXPECT_FALSE(ids.out.empty());
  EXPECT_EQ(ids.out, run({"tokenize", folder, text}).out);
  // Any part of a split one.
  const std::string part = (models / "llama3_q8-00002-of-00003.gguf").string();
  EXPECT_EQ(run({"tokenize", part, text}).exit_code, 0);
  const ProgramResult asked = run({"template", (models / "qwen2_f16.gguf").string(), "-p", "Hi"});
  EXPECT_EQ(asked.exit_code, 0) << asked.err;
  EXPECT_NE(asked.out.find("Hi"), std::string::npos);
  put("t.jinja", "[{{ messages[0].content }}]");
  EXPECT_EQ(run({"template", file, "-p", "Hi", "--chat-template", "t.jinja"}).out, "[Hi]");
}

TEST_F(TemplateCliTest, WhatCannotBeShownIsRefused) {
  const std::string model = model_.string();
  expect_refused({"template", model, "--conversation", "none.json"}, 2, {"none.json"});
  put("c.json", "[5]");
  expect_refused({"template", model, "--conversation", "c.json"}, 2, {"messages[0]"});
  expect_refused({"template", model, "--conversation", "c.json", "-p", "x"}, 2, {"--prompt"});
  put("raises.jinja",
      "{{ messages[0].content }}{% if tools %}{{ raise_exception('no tools') }}{% endif %}");
  put("d.json", R"({"messages":[{"role":"user","content":"a"}],"tools":[{}]})");
  expect_refused({"template", model, "--conversation", "d.json", "--chat-template", "raises.jinja"},
                 2, {"raises.jinja", "line 1", "no tools"});
  Json config = bundled_config();
  config.erase("chat_template");
  expect_refused({"template", copy_with("bare", config)}, 4, {"bare", "chat_template.jinja"});
}

TEST_F(TemplateCliTest, TokensAreShownWithTheirIds) {
  const std::string model = model_.string();
  const Json shown = run({"tokenize", model, "hi <image>", "--json"}).json_lines().at(0);
  EXPECT_EQ(shown["tokens"].front(), "<s>");
  EXPECT_EQ(shown["tokens"].back(), "<image>");
  EXPECT_EQ(shown["ids"].size(), shown["tokens"].size());
  const Json plain =
      run({"tokenize", model, "<image>", "--plain", "--bare", "--json"}).json_lines().at(0);
  EXPECT_GT(plain["ids"].size(), 1u);
  EXPECT_EQ(plain.dump().find("<image>"), std::string::npos);
  put("t.txt", "hi <image>");
  const std::string lines = run({"tokenize", model, "--file", "t.txt"}).out;
  EXPECT_EQ(lines.substr(0, lines.find('\n')), shown["ids"][0].dump() + "\t<s>");
  put("bad.txt", "hi \xff");
  expect_refused({"tokenize", model, "--file", "bad.txt"}, 2, {"bad.txt", "byte 3", "UTF-8"});
  expect_refused({"tokenize", model}, 2, {"TEXT"});
  expect_refused({"tokenize", model, "a", "--file", "t.txt"}, 2, {"TEXT"});
}

// The bundled template says what the family's form says, so both give one text; another template
// is another question.
TEST_F(TemplateCliTest, TheTemplateOfTheFolderDecidesThePrompt) {
  const std::string usual = answer({"-m", model_.string()});
  Json config = bundled_config();
  config.erase("chat_template");
  EXPECT_EQ(answer({"-m", copy_with("bare", config)}), usual);
  config["chat_template"] = kAnother;
  const std::string other = answer({"-m", copy_with("another", config)});
  EXPECT_NE(other, usual);
  put("another.jinja", kAnother);
  EXPECT_EQ(answer({"-m", model_.string(), "--chat-template", "another.jinja"}), other);
  put("usual.jinja", bundled_config().at("chat_template").get<std::string>());
  EXPECT_EQ(answer({"-m", (folder_ / "another").string(), "--chat-template", "usual.jinja"}),
            usual);
}

TEST_F(TemplateCliTest, TemplatesThatCannotAskAreRefusedByFile) {
  const auto refuse = [&](const std::string& source, const std::vector<std::string>& shown) {
    put("t.jinja", source);
    expect_refused(
        {"caption", "--image", "photo.png", "-m", model_.string(), "--chat-template", "t.jinja"}, 4,
        shown);
  };
  refuse("{% for p in messages[0].content %}{{ p.text }}{% endfor %}",
         {"t.jinja", "each image", "--chat-template"});
  refuse("USER:", {"t.jinja", "user's text"});
  refuse("{% for p in %}", {"t.jinja", "line 1, column 13"});
  refuse("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
         {"t.jinja", "a template that"});
}

// A job goes on with the template that it began with.
TEST_F(TemplateCliTest, AnotherTemplateIsAnotherJob) {
  put("another.jinja", kAnother);
  std::vector<std::string> job = {"caption",      "photo.png", "-m", model_.string(),
                                  "--max-tokens", "4",         "-o", "out.jsonl"};
  ASSERT_EQ(run(job).exit_code, 0);
  EXPECT_EQ(run(job).exit_code, 0);
  job.insert(job.end(), {"--chat-template", "another.jinja"});
  EXPECT_NE(run(job).exit_code, 0);
}

// The language model's own template knows no images: the family's form stays.
TEST_F(TemplateCliTest, ATokenizersTemplateWithoutImagesLeavesTheFormOfTheFamily) {
  Json config = bundled_config();
  config["chat_template"] =
      "{% for m in messages %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endfor %}";
  EXPECT_EQ(answer({"-m", copy_with("words", config)}), answer({"-m", model_.string()}));
}

}  // namespace
}  // namespace tessera::template_cli_test
