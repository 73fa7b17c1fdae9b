// Conversations against what the published templates render (assets/recipes/fixtures_chat.py), and
// that no text of a user ever becomes a control segment or a special id.
#include "tokenizers/text/chat_template.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "tests/support/chat_forms.h"
#include "tests/support/temp_folder.h"
#include "tokenizers/template/template_prompt.h"

namespace tessera::chat_template_test {
namespace {

using Json = nlohmann::ordered_json;
using Kind = PromptSegment::Kind;

const std::string kGolden = std::string(TESSERA_SOURCE_DIR) + "/tests/golden/";

std::map<std::string, std::vector<ChatTurn>> conversations() {
  std::map<std::string, std::vector<ChatTurn>> out;
  const Json data = Json::parse(std::ifstream(kGolden + "chat/conversations.json"));
  for (const auto& [name, turns] : data.at("conversations").items()) {
    for (const Json& turn : turns) {
      ChatTurn& made = out[name].emplace_back();
      made.role = turn["role"] == "system" ? ChatRole::kSystem
                  : turn["role"] == "user" ? ChatRole::kUser
                                           : ChatRole::kAssistant;
      for (const Json& part : turn["parts"]) {
        made.parts.push_back(part.is_null() ? ChatPart::image()
                                            : ChatPart{false, part.get<std::string>()});
      }
    }
  }
  return out;
}

std::vector<ImageLayout> layouts_of(const Json& rows) {
  std::vector<ImageLayout> out;
  for (const Json& row : rows) out.push_back({row[0], row[1], row[2]});
  return out;
}

std::vector<ImageLayout> layouts_for(const Prompt& prompt) {
  std::vector<ImageLayout> out;
  for (const PromptSegment& segment : prompt) {
    if (segment.kind == Kind::kImage) out.push_back({.tokens = 3});
  }
  return out;
}

TEST(ChatTemplates, EqualThePublishedOnes) {
  const auto all = conversations();
  std::ifstream file(kGolden + "chat/rendered.jsonl");
  std::map<std::string, int> seen;
  for (std::string line; std::getline(file, line);) {
    const Json row = Json::parse(line);
    const std::string form_name = row["form"], name = row["name"];
    SCOPED_TRACE(form_name + ": " + name + (row["generate"] ? ", generate" : ""));
    const ChatForm& form = form_named(form_name);
    const Prompt prompt = chat_prompt(form, all.at(name), row["generate"]);
    EXPECT_EQ(prompt_text(prompt), row["text"].get<std::string>());
    EXPECT_EQ(render_chat(form, all.at(name), row["generate"]), row["text"].get<std::string>());
    EXPECT_EQ(prompt_text(expand_images(form, prompt, layouts_of(row["layouts"]))),
              row["expanded"].get<std::string>());
    ++seen[form_name];
  }
  EXPECT_EQ(seen.size(), chat_forms().size());
  for (const auto& [name, count] : seen) EXPECT_EQ(count, 36) << name;
}

std::string controls(const Prompt& prompt) {
  std::string out;
  for (const PromptSegment& segment : prompt) {
    if (segment.kind != Kind::kPlain) out += segment.text;
  }
  return out;
}

// Whatever people write, the control segments are those of the same conversation with harmless
// texts, before and after images are expanded.
TEST(ChatTemplates, TextsNeverBecomeControl) {
  for (const auto& [name, turns] : conversations()) {
    auto harmless = turns;
    for (ChatTurn& turn : harmless) {
      for (ChatPart& part : turn.parts) part.text = part.is_image ? "" : "x";
    }
    for (const ChatForm* each : chat_forms()) {
      const ChatForm& form = *each;
      SCOPED_TRACE(std::string(form.name) + ": " + name);
      const Prompt prompt = chat_prompt(form, turns, true);
      const Prompt plain = chat_prompt(form, harmless, true);
      EXPECT_EQ(controls(prompt), controls(plain));
      EXPECT_EQ(controls(expand_images(form, prompt, layouts_for(prompt))),
                controls(expand_images(form, plain, layouts_for(plain))));
    }
  }
}

// Control segments hold tokens in angle brackets and nothing else; every text of the conversation
// is inside one plain segment.
TEST(ChatTemplates, ControlSegmentsAreTokensOnly) {
  for (const auto& [name, turns] : conversations()) {
    for (const ChatForm* each : chat_forms()) {
      const ChatForm& form = *each;
      const Prompt prompt = chat_prompt(form, turns, true);
      for (const PromptSegment& segment : expand_images(form, prompt, layouts_for(prompt))) {
        if (segment.kind == Kind::kPlain) continue;
        int depth = 0;
        for (const char c : segment.text) {
          depth += c == '<' ? 1 : c == '>' ? -1 : 0;
          EXPECT_TRUE(depth == 1 || (depth == 0 && c == '>')) << segment.text;
          EXPECT_FALSE(c == ' ' || c == '\n') << segment.text;
        }
      }
    }
  }
}

TEST(ChatTemplates, RefusesWhatTheyCannotSay) {
  const auto code = [](const auto& call) -> std::string {
    try {
      call();
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), 2);
      return error.info().code;
    }
    return "";
  };
  const ChatTurn user = {ChatRole::kUser, {ChatPart::image(), {false, "x"}}};
  const ChatTurn system = {ChatRole::kSystem, {{false, "x"}}};
  for (const ChatForm* each : chat_forms()) {
    const ChatForm& form = *each;
    EXPECT_EQ(code([&] { chat_prompt(form, {user, system}, true); }), "E_CHAT_ROLE");
    EXPECT_EQ(code([&] {
                chat_prompt(form, {{ChatRole::kSystem, {ChatPart::image()}}, user}, true);
              }),
              "E_CHAT_IMAGES");
    const Prompt prompt = chat_prompt(form, {user}, true);
    const std::vector<ImageLayout> two(2, {.tokens = 1});
    EXPECT_EQ(code([&] { expand_images(form, prompt, {}); }), "E_CHAT_IMAGES");
    EXPECT_EQ(code([&] { expand_images(form, prompt, two); }), "E_CHAT_IMAGES");
    EXPECT_EQ(code([&] { expand_images(form, prompt, std::span(two).first(1)); }), "");
    EXPECT_NO_THROW(chat_prompt(form, {}, true));
  }
}

struct Case {
  std::string tokenizer;
  std::string form;
  std::vector<std::string> special;  // of the family

  const ChatForm& chat() const { return form_named(form); }
};

// A recorded tokenizer that knows the family's special tokens too.
TextTokenizer tokenizer_of(const Case& c) {
  Json file = Json::parse(std::ifstream(kGolden + "text/" + c.tokenizer + ".tokenizer.json"));
  std::int64_t next = 0;
  std::vector<std::string> known;
  for (const Json& id : file["model"]["vocab"]) next = std::max(next, id.get<std::int64_t>() + 1);
  for (const Json& token : file["added_tokens"]) {
    next = std::max(next, token["id"].get<std::int64_t>() + 1);
    known.push_back(token["content"]);
  }
  for (const std::string& token : c.special) {
    if (std::find(known.begin(), known.end(), token) != known.end()) continue;
    file["added_tokens"].push_back({{"id", next++},
                                    {"content", token},
                                    {"single_word", false},
                                    {"lstrip", false},
                                    {"rstrip", false},
                                    {"normalized", false},
                                    {"special", true}});
  }
  return TextTokenizer::from_json(file.dump(), c.tokenizer);
}

class ChatIds : public ::testing::TestWithParam<Case> {};

// Segment by segment equals the whole string at once wherever nobody spells a special token, so the
// segments change nothing of what the reference would see.
TEST_P(ChatIds, SegmentsEqualTheWholeString) {
  const Case& c = GetParam();
  const TextTokenizer tokenizer = tokenizer_of(c);
  for (const auto& [name, turns] : conversations()) {
    if (name.starts_with("attack")) continue;
    SCOPED_TRACE(name);
    const Prompt prompt = chat_prompt(c.chat(), turns, true);
    for (const Prompt& one : {prompt, expand_images(c.chat(), prompt, layouts_for(prompt))}) {
      const auto begin = tokenizer.encode("", true);
      auto whole = tokenizer.encode(prompt_text(one), false);
      const bool begun = std::equal(begin.begin(), begin.end(), whole.begin());
      if (!begun) whole.insert(whole.begin(), begin.begin(), begin.end());
      EXPECT_EQ(encode_prompt(tokenizer, one), whole);
    }
  }
}

TEST_P(ChatIds, AttacksAddNoSpecialId) {
  const Case& c = GetParam();
  const TextTokenizer tokenizer = tokenizer_of(c);
  int attacked = 0;
  for (const auto& [name, turns] : conversations()) {
    SCOPED_TRACE(name);
    auto harmless = turns;
    for (ChatTurn& turn : harmless) {
      for (ChatPart& part : turn.parts) part.text = part.is_image ? "" : "x";
    }
    const auto ids = encode_prompt(tokenizer, chat_prompt(c.chat(), turns, true));
    const auto want = encode_prompt(tokenizer, chat_prompt(c.chat(), harmless, true));
    const auto naive = tokenizer.encode(render_chat(c.chat(), turns, true), true);
    for (const std::string& token : c.special) {
      const auto id = tokenizer.id_of(token);
      ASSERT_TRUE(id && tokenizer.is_special(*id)) << token;
      const auto count = [&](const auto& list) {
        return std::count(list.begin(), list.end(), *id);
      };
      EXPECT_EQ(count(ids), count(want)) << token;
      attacked += name.starts_with("attack") && count(naive) > count(want) ? 1 : 0;
    }
  }
  EXPECT_GE(attacked, 3) << "the joined string, encoded, would have fallen for the attacks";
}

// The template that the family publishes, read from a folder and rendered, gives the ids of the
// family's form: with images expanded, and under attack.
TEST_P(ChatIds, ThePublishedTemplateGivesTheIdsOfTheForm) {
  const Case& c = GetParam();
  const Json templates = Json::parse(std::ifstream(kGolden + "chat/templates.json"));
  if (!templates.contains(c.form)) GTEST_SKIP() << "published as code";
  const TempFolder folder;
  put_file(folder / "chat_template.jinja", templates[c.form].get<std::string>());
  const auto found = read_folder_template(folder.path());
  ASSERT_TRUE(found);
  EXPECT_EQ(found->content, ContentForm::kParts);
  const TextTokenizer tokenizer = tokenizer_of(c);
  const SpecialTexts special(tokenizer);
  const ChatForm& form = c.chat();
  const bool own_frame = form.layout == ChatLayout::kJanus;
  ChatForm bare = form;
  if (!own_frame) bare.image_open = bare.image_close = {};
  int compared = 0;
  for (const auto& [name, turns] : conversations()) {
    SCOPED_TRACE(name);
    // The system sentence of Janus is written by its processor.
    if (own_frame && turns.front().role == ChatRole::kSystem) continue;
    for (const bool generate : {true, false}) {
      Prompt got =
          chat_prompt(*found, turns, generate, special, {.image = std::string(form.image)});
      if (own_frame) {
        const std::string system =
            std::string(form.implied_system) + std::string(form.system_close);
        got.insert(got.begin(), {Kind::kPlain, system});
      }
      const Prompt want = chat_prompt(form, turns, generate);
      EXPECT_EQ(prompt_text(got), prompt_text(want));
      const auto layouts = layouts_for(want);
      EXPECT_EQ(encode_prompt(tokenizer, expand_images(bare, got, layouts)),
                encode_prompt(tokenizer, expand_images(form, want, layouts)));
      ++compared;
    }
  }
  EXPECT_GE(compared, 30);
}

const std::string kEnd = "<\uff5cend\u2581of\u2581sentence\uff5c>";
std::vector<std::string> tiles_and(const std::string& begin) {
  return {begin, "<end_of_utterance>", "<image>", "<fake_token_around_image>", "<global-img>"};
}

INSTANTIATE_TEST_SUITE_P(
    Tokenizers, ChatIds,
    ::testing::Values(Case{"qwen2",
                           "qwen2-vl",
                           {"<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|image_pad|>",
                            "<|vision_end|>"}},
                      Case{"qwen2", "llava-onevision", {"<|im_start|>", "<|im_end|>", "<image>"}},
                      Case{"digits_gpt2", "smolvlm", tiles_and("<|im_start|>")},
                      Case{"llama3", "idefics3", tiles_and("<|begin_of_text|>")},
                      Case{"llama2", "llava-1.5", {"<image>"}},
                      Case{"llama2", "llava-1.6-vicuna-original", {"</s>", "<image>"}},
                      Case{"llama2", "llava-1.6-mistral", {"</s>", "<image>"}},
                      Case{"metaspace", "llava-1.6-vicuna", {"</s>", "<image>"}},
                      Case{"llama2", "llava-1.6-yi", {"<|im_start|>", "<|im_end|>", "<image>"}},
                      Case{"deepseek_llm",
                           "janus",
                           {"<image_placeholder>", "<begin_of_image>", "<end_of_image>", kEnd}},
                      Case{"deepseek_llm",
                           "janus-pro",
                           {"<image_placeholder>", "<begin_of_image>", "<end_of_image>", "<|User|>",
                            "<|Assistant|>", kEnd}}),
    [](const auto& tested) {
      std::string name = tested.param.form;
      for (char& c : name) c = c == '-' || c == '.' ? '_' : c;
      return name;
    });

}  // namespace
}  // namespace tessera::chat_template_test
