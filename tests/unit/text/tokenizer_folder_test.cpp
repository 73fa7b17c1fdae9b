// A tokenizer.json together with the files next to it. What the reference makes of them stands in
// the goldens of folders; here is what is said or refused.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "tests/support/temp_folder.h"
#include "tokenizers/text/chat_template.h"
#include "tokenizers/text/tokenizer.h"

namespace tessera::tokenizer_folder_test {
namespace {

using Json = nlohmann::json;

const std::filesystem::path kFolder =
    std::filesystem::path(TESSERA_SOURCE_DIR) / "tests/golden/text_folders/json_listed";

Json tokenizer_json() { return Json::parse(get_file(kFolder / "tokenizer.json")); }

TextTokenizer open(const Json& tokenizer, const Json& config) {
  const TempFolder folder;
  put_file(folder.path() / "tokenizer.json", tokenizer.dump());
  put_file(folder.path() / "tokenizer_config.json", config.dump());
  return TextTokenizer::from_folder(folder.path());
}

std::vector<std::string> not_followed(const TextTokenizer& tokenizer) {
  std::vector<std::string> out;
  for (const TokenizerNote& note : tokenizer.notes()) {
    if (!note.neutral) out.push_back(note.file + " " + note.key);
  }
  return out;
}

TEST(TokenizerFolder, SwitchesThatTheTemplateContradictsAreNamed) {
  const Json plain = tokenizer_json();
  using Names = std::vector<std::string>;
  EXPECT_EQ(not_followed(open(plain, Json::object())), Names{});
  EXPECT_EQ(not_followed(open(plain, {{"add_bos_token", false}, {"add_eos_token", nullptr}})),
            Names{});
  EXPECT_EQ(not_followed(open(plain, {{"add_bos_token", true}, {"add_eos_token", true}})),
            (Names{"tokenizer_config.json add_bos_token", "tokenizer_config.json add_eos_token"}));
  Json with_bos = plain;
  with_bos["post_processor"] = {
      {"type", "TemplateProcessing"},
      {"single",
       {{{"SpecialToken", {{"id", "b"}, {"type_id", 0}}}},
        {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
      {"pair", Json::array()},
      {"special_tokens", {{"b", {{"id", "b"}, {"ids", {1000}}, {"tokens", {"<|endoftext|>"}}}}}}};
  EXPECT_EQ(not_followed(open(with_bos, {{"add_bos_token", true}})), Names{});
  EXPECT_EQ(not_followed(open(with_bos, {{"add_bos_token", false}})),
            Names{"tokenizer_config.json add_bos_token"});
}

// Classes of transformers 5 take the vocabulary of a tokenizer.json and make the rest themselves;
// which class it is, tokenizer_class and model_type say together.
TEST(TokenizerFolder, AClassThatCutsTextsItselfDoesSoWithTheVocabularyOfTokenizerJson) {
  const std::filesystem::path golden = kFolder.parent_path().parent_path() / "text";
  const Json whole = Json::parse(get_file(golden / "rebuilt.json"));
  ASSERT_EQ(whole["folders"].size(), 31u);
  for (const Json& row : whole["folders"]) {
    SCOPED_TRACE(row["base"].dump() + row["type"].dump() + row["config"].dump());
    const TempFolder folder;
    const std::string base = row["base"].get<std::string>() + ".tokenizer.json";
    put_file(folder.path() / "tokenizer.json", get_file(golden / base));
    put_file(folder.path() / "tokenizer_config.json", row["config"].dump());
    if (row["type"] != "") {
      put_file(folder.path() / "config.json", Json{{"model_type", row["type"]}}.dump());
    }
    const TextTokenizer tokenizer = TextTokenizer::from_folder(folder.path());
    for (std::size_t i = 0; i < whole["texts"].size(); ++i) {
      const auto ids = tokenizer.encode(whole["texts"][i].get<std::string>());
      EXPECT_EQ(Json(ids), row["ids"][i]) << whole["texts"][i];
      const auto wanted = row["ids"][i].get<std::vector<std::int32_t>>();
      EXPECT_EQ(tokenizer.decode(wanted, false), row["texts"][i]) << whole["texts"][i];
    }
  }
}

TEST(TokenizerFolder, AClassOfAnotherKindOfModelIsRefusedByName) {
  const TempFolder folder;
  put_file(folder.path() / "tokenizer.json",
           get_file(kFolder.parent_path().parent_path() / "text" / "unigram_bytes.tokenizer.json"));
  put_file(folder.path() / "config.json", R"({"model_type": "qwen2"})");
  try {
    TextTokenizer::from_folder(folder.path());
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.info().code + " " + error.info().where, "E_TOK_CLASS tokenizer_class");
    EXPECT_NE(error.info().file.find("config.json"), std::string::npos);
  }
}

// Two releases have two names for more special tokens, in two files.
TEST(TokenizerFolder, MoreTokensAreThoseThatTheReferenceAdds) {
  const Json plain = Json::parse(get_file(kFolder.parent_path() / "json_older" / "tokenizer.json"));
  const Json rows =
      Json::parse(get_file(kFolder.parent_path().parent_path() / "text" / "more_tokens.json"));
  ASSERT_EQ(rows.size(), 36u);
  for (const Json& row : rows) {
    const TempFolder folder;
    put_file(folder.path() / "tokenizer.json", plain.dump());
    put_file(folder.path() / "tokenizer_config.json", row[0].dump());
    if (!row[1].is_null()) put_file(folder.path() / "special_tokens_map.json", row[1].dump());
    const TextTokenizer tokenizer = TextTokenizer::from_folder(folder.path());
    Json added = Json::array();
    for (const char* token : {"<a>", "<b>", "<c>", "<d>"}) {
      if (tokenizer.id_of(token)) added.push_back(token);
    }
    EXPECT_EQ(added, row[2]) << row;
  }
}

// What the template puts after a text follows the prompt; a prompt that begins as the template
// would is left alone.
TEST(TokenizerFolder, ATemplateAroundATextStandsAroundAPrompt) {
  Json tokenizer = tokenizer_json();
  tokenizer["post_processor"] = {
      {"type", "BertProcessing"}, {"cls", {"<|im_start|>", 1001}}, {"sep", {"<|im_end|>", 1002}}};
  const TextTokenizer around = open(tokenizer, Json::object());
  std::vector<std::int32_t> want = around.encode("red cube", false);
  want.insert(want.begin(), 1001);
  want.push_back(1002);
  using Kind = PromptSegment::Kind;
  EXPECT_EQ(encode_prompt(around, {{Kind::kPlain, "red cube"}}), want);
  want.pop_back();
  EXPECT_EQ(encode_prompt(around, {{Kind::kControl, "<|im_start|>"}, {Kind::kPlain, "red cube"}}),
            want);
}

TEST(TokenizerFolder, SpacesThatTheReferenceWouldCleanAreNamed) {
  Json tokenizer = tokenizer_json();
  EXPECT_TRUE(not_followed(open(tokenizer, {{"clean_up_tokenization_spaces", true}})).empty());
  tokenizer["model"] = {{"type", "WordPiece"},
                        {"vocab", {{"[U]", 0}, {"a", 1}}},
                        {"unk_token", "[U]"},
                        {"continuing_subword_prefix", "##"},
                        {"max_input_chars_per_word", 100}};
  tokenizer["added_tokens"] = Json::array();
  EXPECT_EQ(not_followed(open(tokenizer, {{"clean_up_tokenization_spaces", true}})),
            std::vector<std::string>{"tokenizer_config.json clean_up_tokenization_spaces"});
}

TEST(TokenizerFolder, WhatReleasesReadOtherwiseOfSentencePieceIsNamed) {
  const auto named = [](const char* name, const Json& config) {
    const TempFolder folder;
    for (const auto& entry : std::filesystem::directory_iterator(kFolder.parent_path() / name)) {
      if (entry.path().extension() == ".model") {
        std::filesystem::copy(entry.path(), folder.path() / entry.path().filename());
      }
    }
    if (!config.is_null()) put_file(folder.path() / "tokenizer_config.json", config.dump());
    return not_followed(TextTokenizer::from_folder(folder.path()));
  };
  using Names = std::vector<std::string>;
  const Names absent = {"tokenizer_config.json add_bos_token (absent)",
                        "tokenizer_config.json legacy (absent)"};
  EXPECT_EQ(named("llama_bare", nullptr), absent);
  EXPECT_EQ(named("llama_bare", {{"legacy", nullptr}, {"add_bos_token", true}}), Names{absent[1]});
  EXPECT_EQ(named("llama_bare", {{"legacy", false}, {"add_bos_token", false}}), Names{});
  EXPECT_EQ(named("t5", {{"tokenizer_class", "T5Tokenizer"}}), Names{});
  EXPECT_EQ(named("t5", {{"tokenizer_class", "T5Tokenizer"},
                         {"extra_ids", 0},
                         {"added_tokens_decoder", {{"0", {{"content", "<pad>"}}}}}}),
            Names{"tokenizer_config.json added_tokens_decoder"});
}

// Which class it is, the model's type says: transformers 5.24 gives these ids for these folders.
TEST(TokenizerFolder, VocabularyAndMergesAreReadByTheClassOfTheModelsType) {
  const std::filesystem::path from = kFolder.parent_path() / "qwen2";
  const TextTokenizer want = TextTokenizer::from_folder(from);
  const std::string text = "It's 12345  a\n\n b<|im_end|> Ünïcode";
  Json config = Json::parse(get_file(from / "tokenizer_config.json"));
  const auto ids = [&](const char* name, const char* type) {
    const TempFolder folder;
    for (const char* file : {"vocab.json", "merges.txt"}) {
      std::filesystem::copy(from / file, folder.path() / file);
    }
    config["tokenizer_class"] = name == nullptr ? Json() : Json(name);
    put_file(folder.path() / "tokenizer_config.json", config.dump());
    put_file(folder.path() / "config.json", Json{{"model_type", type}}.dump());
    return TextTokenizer::from_folder(folder.path()).encode(text);
  };
  EXPECT_EQ(ids("GPT2Tokenizer", "qwen2"), want.encode(text));
  EXPECT_EQ(ids(nullptr, "qwen2"), want.encode(text));
  EXPECT_EQ(ids(nullptr, "qwen3"), want.encode(text));
  EXPECT_THROW(ids(nullptr, "llama"), Error);
}

TEST(TokenizerFolder, AFileWithNothingNewChangesNothing) {
  const Json tokenizer = tokenizer_json();
  Json listed = Json::object();
  for (const Json& token : tokenizer["added_tokens"]) {
    Json entry = token;
    entry.erase("id");
    listed[std::to_string(token["id"].get<int>())] = entry;
  }
  const TextTokenizer bare = open(tokenizer, Json::object());
  const TextTokenizer same = open(tokenizer, {{"added_tokens_decoder", listed}});
  EXPECT_EQ(same.vocab_size(), bare.vocab_size());
  EXPECT_EQ(same.encode("a <tool_call> b"), bare.encode("a <tool_call> b"));
}

TEST(TokenizerFolder, ContradictionsAreRefusedByFileAndKey) {
  const auto code_of = [](const Json& config) -> std::string {
    try {
      open(tokenizer_json(), config);
    } catch (const Error& error) {
      EXPECT_NE(error.info().file.find("tokenizer_config.json"), std::string::npos);
      return error.info().code + " " + error.info().where;
    }
    return "none";
  };
  const auto listed = [](const std::string& id, const std::string& content) {
    return Json{{"added_tokens_decoder", {{id, {{"content", content}}}}}};
  };
  EXPECT_EQ(code_of(listed("7", "<tool_call>")), "E_TOK_ADDED_ID id 7, \"<tool_call>\"");
  EXPECT_EQ(code_of(listed("1009", "<box>")), "E_TOK_ADDED_ID id 1009, \"<box>\"");
  EXPECT_EQ(code_of({{"split_special_tokens", true}}).substr(0, 19), "E_TOK_SPLIT_SPECIAL");
  EXPECT_EQ(code_of({{"extra_special_tokens", {{"row", 3}}}}).substr(0, 10), "E_TOK_TYPE");
  EXPECT_EQ(code_of({{"extra_special_tokens", 3}}).substr(0, 10), "E_TOK_TYPE");
  EXPECT_EQ(code_of(Json::array()).substr(0, 10), "E_TOK_TYPE");
}

}  // namespace
}  // namespace tessera::tokenizer_folder_test
