// Tokenizers of folders as GGUF files list them: the list, read again, gives the ids that the
// reference gives; what no list gives is refused with a text that shows it.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "engine/core/io.h"
#include "engine/core/json.h"
#include "tests/support/temp_folder.h"
#include "tokenizers/text/listed_tokenizer.h"
#include "tokenizers/text/tokenizer.h"

namespace tessera::list_tokenizer_test {
namespace {

namespace fs = std::filesystem;

const fs::path kGolden = fs::path(TESSERA_SOURCE_DIR) / "tests/golden";

std::vector<Json> lines_of(const fs::path& path) {
  std::istringstream in(get_file(path));
  std::vector<Json> out;
  for (std::string line; std::getline(in, line);) {
    if (!line.empty()) out.push_back(Json::parse(line));
  }
  return out;
}

// The reference's ids of every string of the file.
void expect_reference_ids(ListedTokenizer listed, const fs::path& strings) {
  const TextTokenizer read = TextTokenizer::from_parts(convert_listed(std::move(listed)));
  std::size_t count = 0;
  for (const Json& line : lines_of(strings)) {
    if (!line.contains("text") || !line.contains("ids")) continue;
    ++count;
    EXPECT_EQ(read.encode(line["text"].get<std::string>()),
              line["ids"].get<std::vector<std::int32_t>>())
        << strings << " " << line["text"];
  }
  EXPECT_GT(count, 10u) << strings;
}

Error refusal_of(const fs::path& folder) {
  try {
    list_tokenizer(folder, 1 << 20);
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << folder << " was listed";
  return Error({});
}

TEST(ListTokenizer, FoldersGiveTheReferencesIds) {
  for (const char* name : {"qwen2", "llama_bare", "llama_plain"}) {
    const fs::path folder = kGolden / "text_folders" / name;
    const ListedTokenizer listed = list_tokenizer(folder, 4096);
    EXPECT_EQ(listed.tokens.size(), 4096u);
    EXPECT_EQ(listed.kinds.size(), 4096u);
    EXPECT_EQ(listed.kinds.back(), ListedKind::kUnused);
    EXPECT_EQ(listed.model, std::string_view(name).starts_with("llama") ? "llama" : "gpt2");
    expect_reference_ids(listed, folder / "strings.jsonl");
  }
}

// The golden file without the added tokens that have flags, which lists do not.
void put_plain_tokens(const char* name, const fs::path& to) {
  Json json = Json::parse(get_file(kGolden / "text" / (std::string(name) + ".tokenizer.json")));
  Json kept = Json::array();
  for (const Json& token : json["added_tokens"]) {
    const bool flags = token["lstrip"] == true || token["rstrip"] == true ||
                       token["single_word"] == true || token["normalized"] == true;
    if (!flags) kept.push_back(token);
    if (flags && std::string_view(name) == "gpt2") break;  // ids stay dense
  }
  json["added_tokens"] = std::move(kept);
  put_file(to, json.dump());
}

TEST(ListTokenizer, TokenizerFilesGiveTheirOwnIds) {
  const std::pair<const char*, const char*> rows[] = {
      {"llama2", "default"}, {"llama3", "llama-bpe"}, {"qwen2", "qwen2"}, {"gpt2", "gpt-2"}};
  for (const auto& [name, cut] : rows) {
    const TempFolder folder;
    put_plain_tokens(name, folder / "tokenizer.json");
    ListedTokenizer listed = list_tokenizer(folder.path(), 1 << 18);
    EXPECT_EQ(listed.cut, cut) << name;
    const TextTokenizer own = TextTokenizer::from_folder(folder.path());
    const TextTokenizer read = TextTokenizer::from_parts(convert_listed(std::move(listed)));
    std::size_t count = 0;
    for (const Json& line : lines_of(kGolden / "text" / (std::string(name) + ".strings.jsonl"))) {
      const std::string text = line["text"].get<std::string>();
      EXPECT_EQ(read.encode(text), own.encode(text)) << name << " " << line["text"];
      ++count;
    }
    EXPECT_GT(count, 50u);
  }
}

TEST(ListTokenizer, OtherTokenizersAreRefusedWithAText) {
  for (const char* name : {"t5", "clip", "gpt2", "llama_first", "llama_legacy", "llama_unigram"}) {
    const ErrorInfo info = refusal_of(kGolden / "text_folders" / name).info();
    EXPECT_EQ(info.code, "E_TOK_LISTED") << name;
    EXPECT_EQ(info.file, (kGolden / "text_folders" / name).string());
    EXPECT_FALSE(info.found.empty());
  }
  for (const char* name : {"deepseek3", "gpt4o", "bert", "llama2", "gpt2"}) {
    const TempFolder folder;
    fs::copy(kGolden / "text" / (std::string(name) + ".tokenizer.json"), folder / "tokenizer.json");
    EXPECT_EQ(refusal_of(folder.path()).info().code, "E_TOK_LISTED") << name;
  }
}

TEST(ListTokenizer, MoreTokensThanTheModelHasAreRefused) {
  const fs::path folder = kGolden / "text_folders/qwen2";
  EXPECT_THROW(list_tokenizer(folder, 100), Error);
}

}  // namespace
}  // namespace tessera::list_tokenizer_test
