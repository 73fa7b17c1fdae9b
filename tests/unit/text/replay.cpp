// See replay.h.
#include "tests/unit/text/replay.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "tokenizers/text/component_json.h"
#include "tokenizers/text/json_node.h"
#include "tokenizers/text/tokenizer.h"

namespace tessera {

namespace {

constexpr std::string_view kSuffix = ".tokenizer.json";

using Ids = std::vector<std::int32_t>;

void compare(ReplayResult& result, const std::string& what, const nlohmann::json& row,
             const nlohmann::json& got, const nlohmann::json& want) {
  if (got == want) return;
  ++result.disagreement_count;
  if (result.disagreements.size() >= 50) return;
  result.disagreements.push_back(what + " of " + row.at("text").dump(-1, ' ', true) + ": got " +
                                 got.dump(-1, ' ', true) + ", want " + want.dump(-1, ' ', true));
}

PreTokenizer pre_tokenizer_of(const std::string& json_text) {
  const Json json = parse_json(json_text, "pre-tokeniser", {std::size_t{1} << 20, 32});
  const std::string file = "pre-tokeniser";
  return read_pre_tokenizer(JsonNode(json, file, "$"));
}

std::vector<std::string> words_of(const PreTokenizer& pre_tokenizer, const std::string& text) {
  RegexScratch scratch(text.size(), "pre-tokeniser");
  const Words words = pre_tokenize(pre_tokenizer, text, true, scratch);
  std::vector<std::string> out;
  for (const Words::Word& word : words.words) {
    out.push_back(words.text.substr(word.begin, word.end - word.begin));
  }
  return out;
}

// The text as stretches: special tokens control, all else plain.
std::vector<TextStretch> stretches_of(const TextTokenizer& tokenizer, std::string_view text) {
  std::vector<TextStretch> out;
  const auto add = [&](std::size_t begin, std::size_t end, SpecialText in_text) {
    if (begin < end) out.push_back({text.substr(begin, end - begin), in_text});
  };
  std::size_t done = 0;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t length = 0;
    for (std::int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
      if (!tokenizer.is_special(id) || !text.substr(at).starts_with(tokenizer.token(id))) continue;
      length = std::max(length, tokenizer.token(id).size());
    }
    if (length > 0) {
      add(done, at, SpecialText::kPlain);
      add(at, at + length, SpecialText::kControl);
      done = at + length;
    }
    at += std::max<std::size_t>(length, 1);
  }
  add(done, text.size(), SpecialText::kPlain);
  return out;
}

ReplayResult replay_rows(const TextTokenizer& tokenizer, const PreTokenizer& pre_tokenizer,
                         const std::filesystem::path& file) {
  std::ifstream lines(file);
  if (!lines) throw std::runtime_error("no strings: " + file.string());
  ReplayResult result;
  for (std::string line; std::getline(lines, line);) {
    const auto row = nlohmann::json::parse(line);
    const auto text = row.at("text").get<std::string>();
    const auto want = row.at("ids").get<Ids>();
    const auto field = [&](const char* key, const nlohmann::json& otherwise) {
      return row.contains(key) ? row.at(key) : otherwise;
    };
    ++result.strings;
    compare(result, "ids", row, tokenizer.encode(text), want);
    compare(result, "plain ids", row, tokenizer.encode(text, false), field("plain", want));
    compare(result, "ids of stretches", row, tokenizer.encode(stretches_of(tokenizer, text), false),
            field("plain", want));
    const nlohmann::json decoded = field("decoded", text);
    if (row.contains("words")) {
      compare(result, "words", row, words_of(pre_tokenizer, text), row.at("words"));
    }
    compare(result, "decoded text", row, tokenizer.decode(want), decoded);
    compare(result, "raw text", row, tokenizer.decode(want, false), field("raw", decoded));
  }
  return result;
}

}  // namespace

ReplayResult replay_words(const std::filesystem::path& file) {
  std::ifstream lines(file);
  if (!lines) throw std::runtime_error("no words");
  ReplayResult result;
  for (std::string line; std::getline(lines, line);) {
    const auto entry = nlohmann::json::parse(line);
    const std::string description = entry.at("pre_tokenizer").dump();
    const PreTokenizer pre_tokenizer = pre_tokenizer_of(description);
    for (const auto& row : entry.at("rows")) {
      ++result.strings;
      const nlohmann::json named = {{"text", row[0]}};
      compare(result, description.substr(0, 300) + " words", named,
              words_of(pre_tokenizer, row[0].get<std::string>()), row[1]);
    }
  }
  return result;
}

ReplayResult replay(const std::filesystem::path& folder, const std::string& name) {
  const TextTokenizer tokenizer = TextTokenizer::from_file(folder / (name + std::string(kSuffix)));
  std::ifstream tokenizer_file(folder / (name + std::string(kSuffix)));
  const auto description = nlohmann::json::parse(tokenizer_file).at("pre_tokenizer");
  const PreTokenizer pre_tokenizer =
      description.is_null() ? PreTokenizer{} : pre_tokenizer_of(description.dump());
  return replay_rows(tokenizer, pre_tokenizer, folder / (name + ".strings.jsonl"));
}

ReplayResult replay_folder(const std::filesystem::path& folder) {
  return replay_rows(TextTokenizer::from_folder(folder), {}, folder / "strings.jsonl");
}

std::size_t encode_texts(const std::filesystem::path& folder, const std::string& name) {
  std::ifstream lines(folder / (name + ".texts.jsonl"));
  if (!lines) throw std::runtime_error("no texts");
  const TextTokenizer tokenizer =
      std::filesystem::is_directory(folder / name)
          ? TextTokenizer::from_folder(folder / name)
          : TextTokenizer::from_file(folder / (name + std::string(kSuffix)));
  std::ofstream out(folder / (name + ".out.jsonl"));
  std::size_t count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const auto text = nlohmann::json::parse(line).get<std::string>();
    const Ids ids = tokenizer.encode(text);
    const nlohmann::json row = {ids, tokenizer.encode(text, false), tokenizer.decode(ids),
                                tokenizer.decode(ids, false)};
    out << row.dump(-1, ' ', true) << '\n';
  }
  if (!out.flush()) throw std::runtime_error("the results could not be written");
  return count;
}

std::vector<std::filesystem::path> replay_folders(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> out;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (std::filesystem::exists(entry.path() / "strings.jsonl")) out.push_back(entry.path());
  }
  std::sort(out.begin(), out.end());
  return out;
}

namespace {

std::vector<std::string> names_with(const std::filesystem::path& folder, std::string_view suffix) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(suffix)) names.push_back(name.substr(0, name.size() - suffix.size()));
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

std::vector<std::string> replay_names(const std::filesystem::path& folder) {
  return names_with(folder, kSuffix);
}

std::vector<std::string> text_names(const std::filesystem::path& folder) {
  return names_with(folder, ".texts.jsonl");
}

}  // namespace tessera
