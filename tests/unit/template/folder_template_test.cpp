// Where a folder's template is found, what it is given, and what becomes of images and special
// tokens in its prompt.
#include "tokenizers/template/folder_template.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/small_models.h"
#include "tests/support/temp_folder.h"
#include "tokenizers/template/conversation.h"
#include "tokenizers/template/template_prompt.h"

namespace tessera::template_test {
namespace {

using Kind = PromptSegment::Kind;

const char* kParts =
    "{% for m in messages %}{% for p in m.content %}{% if p.type == 'text' %}{{ p.text }}"
    "{% else %}<image>{% endif %}{% endfor %}{% endfor %}";
const char* kText = "{% for m in messages %}{{ '[' + m.content + ']' }}{% endfor %}{{ eos_token }}";

std::string json_with(const std::string& source) { return Json{{"chat_template", source}}.dump(); }

std::string rendered(const FolderTemplate& of, const Json& content) {
  const Json messages = {{{"role", "user"}, {"content", content}}};
  TemplateInput input;
  input.messages = &messages;
  input.special_tokens = of.special_tokens;
  return rendered_text(of.source.render(input));
}

std::string code_of(const auto& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.info().code;
  }
  return "";
}

TEST(FolderTemplateTest, IsTakenFromThePlacesInTheirOrder) {
  const TempFolder folder;
  EXPECT_FALSE(read_folder_template(folder.path()));
  const auto expect = [&](const std::string& name, const std::string& text, bool of_tokenizer) {
    put_file(folder / name, text);
    const auto found = read_folder_template(folder.path());
    ASSERT_TRUE(found) << name;
    EXPECT_EQ(std::filesystem::path(found->file).filename(), name);
    EXPECT_EQ(found->of_tokenizer, of_tokenizer);
    EXPECT_EQ(rendered(*found, "x"), "x" + name);
  };
  const auto naming = [](const std::string& name) { return "{{ messages[0].content }}" + name; };
  expect("tokenizer_config.json", json_with(naming("tokenizer_config.json")), true);
  expect("chat_template.jinja", naming("chat_template.jinja"), false);
  expect("chat_template.json", json_with(naming("chat_template.json")), false);
  expect("processor_config.json", json_with(naming("processor_config.json")), false);
}

// Files of templates with names, in the order of transformers 5 (processing_utils.py).
TEST(FolderTemplateTest, NamedTemplatesNeedADefault) {
  const TempFolder folder;
  const auto code = [&] { return code_of([&] { read_folder_template(folder.path()); }); };
  std::filesystem::create_directory(folder / "additional_chat_templates");
  put_file(folder / "tokenizer_config.json", json_with("{{ messages[0].content }}c"));
  EXPECT_EQ(rendered(*read_folder_template(folder.path()), "x"), "xc");
  put_file(folder / "additional_chat_templates/tool_use.jinja", "{{ messages[0].content }}t");
  EXPECT_EQ(code(), "E_TEMPLATE_CHOICE");
  put_file(folder / "additional_chat_templates/default.jinja", "{{ messages[0].content }}d");
  EXPECT_EQ(rendered(*read_folder_template(folder.path()), "x"), "xd");
  put_file(folder / "chat_template.jinja", "{{ messages[0].content }}j");
  EXPECT_EQ(rendered(*read_folder_template(folder.path()), "x"), "xj");
  put_file(folder / "chat_template.json", json_with("{{ messages[0].content }}o"));
  EXPECT_EQ(code(), "E_TEMPLATE_CHOICE");
}

TEST(FolderTemplateTest, ListsOfTemplatesHaveADefault) {
  const TempFolder folder;
  const auto with = [&](const Json& list) {
    put_file(folder / "tokenizer_config.json", Json{{"chat_template", list}}.dump());
    return rendered(*read_folder_template(folder.path()), "x");
  };
  const Json tools = {{"name", "tool_use"}, {"template", "{{ messages[0].content }}t"}};
  const Json usual = {{"name", "default"}, {"template", "{{ messages[0].content }}d"}};
  EXPECT_EQ(with({tools, usual}), "xd");
  EXPECT_EQ(with(Json::array({tools})), "xt");
  EXPECT_EQ(code_of([&] { with({tools, tools}); }), "E_TEMPLATE_CHOICE");
  EXPECT_EQ(code_of([&] { with(Json::array({1})); }), "E_TEMPLATE_CHOICE");
}

TEST(FolderTemplateTest, SpecialTokensAreThoseOfTheFolder) {
  const TempFolder folder;
  put_file(folder / "chat_template.jinja", kText);
  put_file(folder / "tokenizer_config.json",
           R"({"bos_token": null, "eos_token": {"content": "</e>", "lstrip": false}})");
  put_file(folder / "special_tokens_map.json", R"({"eos_token": "</other>", "bos_token": "<b>"})");
  const auto found = read_folder_template(folder.path());
  EXPECT_EQ(rendered(*found, "x"), "[x]</e>");
  EXPECT_EQ(found->special_tokens.size(), 2u);
}

TEST(FolderTemplateTest, TheFormOfTheContentIsFound) {
  const TempFolder folder;
  put_file(folder / "chat_template.jinja", kParts);
  EXPECT_EQ(read_folder_template(folder.path())->content, ContentForm::kParts);
  put_file(folder / "chat_template.jinja", kText);
  EXPECT_EQ(read_folder_template(folder.path())->content, ContentForm::kText);
  // Writes a list as Python shows it: not a form that models know.
  put_file(folder / "chat_template.jinja", "{{ messages[0].content }}");
  EXPECT_EQ(read_folder_template(folder.path())->content, ContentForm::kText);
}

TEST(FolderTemplateTest, TemplatesThatDropOrChangeTheTextAreRefusedByFile) {
  const TempFolder folder;
  for (const char* source : {"nothing", "{{ messages[0].content|upper }}", "{{ tools }}",
                             "{{ messages[0].content * 2 }}"}) {
    put_file(folder / "chat_template.jinja", source);
    EXPECT_EQ(code_of([&] { read_folder_template(folder.path()); }), "E_TEMPLATE_TEXT") << source;
  }
  put_file(folder / "chat_template.jinja", "{{ 1 / 0 }}");
  EXPECT_EQ(code_of([&] { read_folder_template(folder.path()); }), "E_TEMPLATE_VALUE");
  put_file(folder / "chat_template.jinja", "{{");
  EXPECT_EQ(code_of([&] { read_folder_template(folder.path()); }), "E_TEMPLATE_SYNTAX");
  put_file(folder / "chat_template.json", R"({"chat_template": 5})");
  EXPECT_EQ(code_of([&] { read_folder_template(folder.path()); }), "E_JSON_TYPE");
}

class TemplatePromptTest : public ::testing::Test {
 protected:
  static TextTokenizer tokenizer() {
    Json file = Json::parse(kSmallTokenizer);
    for (const char* token : {"<image>", "<im", "<image>>"}) {
      std::int64_t next = 0;
      for (const Json& id : file["model"]["vocab"]) {
        next = std::max(next, id.get<std::int64_t>() + 1);
      }
      for (const Json& row : file["added_tokens"]) {
        next = std::max(next, row["id"].get<std::int64_t>() + 1);
      }
      file["added_tokens"].push_back({{"id", next},
                                      {"content", token},
                                      {"single_word", false},
                                      {"lstrip", false},
                                      {"rstrip", false},
                                      {"normalized", false},
                                      {"special", true}});
    }
    return TextTokenizer::from_json(file.dump(), "small");
  }

  Prompt prompt(const std::string& source, const std::vector<ChatTurn>& turns,
                const TemplateImages& images = {.image = "<image>"}) {
    put_file(folder_ / "chat_template.jinja", source);
    return chat_prompt(*read_folder_template(folder_.path()), turns, true, special_, images);
  }

  TempFolder folder_;
  SpecialTexts special_{tokenizer()};
};

const std::vector<ChatTurn> kQuestion = {
    {ChatRole::kUser, {ChatPart::image(), {false, "a<image><im"}}}};

TEST_F(TemplatePromptTest, PlaceholdersOfTheTemplateAreImagesAndThoseOfTextsStayText) {
  const Prompt got = prompt(kParts, kQuestion);
  EXPECT_EQ(got, (Prompt{{Kind::kImage, "<image>"}, {Kind::kPlain, "a<image><im"}}));
}

TEST_F(TemplatePromptTest, TheLongestSpecialTokenCounts) {
  const Prompt got = prompt(std::string("<im<image>>") + kParts + "x<im", kQuestion);
  EXPECT_EQ(got, (Prompt{{Kind::kControl, "<im<image>>"},
                         {Kind::kImage, "<image>"},
                         {Kind::kPlain, "a<image><imx"},
                         {Kind::kControl, "<im"}}));
}

TEST_F(TemplatePromptTest, TemplatesOfTextsHavePlaceholdersInTheText) {
  const std::string text = "{{ '[' + messages[0].content + ']' }}";
  EXPECT_EQ(
      prompt(text, kQuestion),
      (Prompt{{Kind::kPlain, "["}, {Kind::kImage, "<image>"}, {Kind::kPlain, "a<image><im]"}}));
  EXPECT_EQ(prompt(text, kQuestion, {.image = "<image>", .open = "<im", .images_first = true}),
            (Prompt{{Kind::kPlain, "["},
                    {Kind::kControl, "<im"},
                    {Kind::kImage, "<image>"},
                    {Kind::kPlain, "\na<image><im]"}}));
}

TEST_F(TemplatePromptTest, TemplatesThatLeaveOutAnImageAreRefusedByFile) {
  const char* words = "{% for p in messages[0].content %}{{ p.text }}{% endfor %}";
  const char* twice = "{% for p in messages[0].content %}{{ p.text }}<image>{% endfor %}";
  for (const char* source : {words, twice}) {
    try {
      prompt(source, kQuestion);
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.info().code, "E_TEMPLATE_IMAGES");
      EXPECT_EQ(error.info().file, (folder_ / "chat_template.jinja").string());
    }
  }
}

TEST(ConversationTest, ListsAndObjectsAreRead) {
  const Conversation list = read_conversation(
      R"([{"role": "user", "content": null}, {"role": "assistant", "content": "a", "reasoning": "r"}])",
      "c");
  EXPECT_EQ(
      list.messages->dump(),
      R"([{"role":"user"},{"role":"assistant","content":"a","reasoning":"r","thinking":"r","reasoning_content":"r"}])");
  const Conversation whole = read_conversation(
      R"({"messages": [], "tools": [{}], "documents": null, "add_generation_prompt": false, "x": 1})",
      "c");
  EXPECT_EQ(whole.tools->size(), 1u);
  EXPECT_FALSE(whole.documents);
  EXPECT_FALSE(whole.add_generation_prompt);
  EXPECT_EQ(whole.variables->dump(), R"({"x":1})");
}

TEST(ConversationTest, WhatIsNoConversationIsTheUsersMistake) {
  for (const char* text :
       {"5", "{}", "[5]", R"([{"content": "x"}])", R"({"messages": 5})",
        R"({"messages": [], "tools": 5})", R"({"messages": [], "add_generation_prompt": 5})"}) {
    try {
      read_conversation(text, "c.json");
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.info().code, "E_CHAT_FILE") << text;
      EXPECT_EQ(error.exit_code(), 2);
      EXPECT_EQ(error.info().file, "c.json");
    }
  }
}

}  // namespace
}  // namespace tessera::template_test
