// See replay.h.
#include "tests/unit/text/replay.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

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

}  // namespace

ReplayResult replay(const std::filesystem::path& folder, const std::string& name) {
  const TextTokenizer tokenizer = TextTokenizer::from_file(folder / (name + std::string(kSuffix)));
  std::ifstream lines(folder / (name + ".strings.jsonl"));
  if (!lines) throw std::runtime_error("no strings for " + name);
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
    const nlohmann::json decoded = field("decoded", text);
    compare(result, "decoded text", row, tokenizer.decode(want), decoded);
    compare(result, "raw text", row, tokenizer.decode(want, false), field("raw", decoded));
  }
  return result;
}

std::vector<std::string> replay_names(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(kSuffix)) names.push_back(name.substr(0, name.size() - kSuffix.size()));
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace tessera
