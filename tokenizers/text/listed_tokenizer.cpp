// What the tokenizer.json of the models that bear these names says; the parts of a SentencePiece
// model are those that its own file has.
#include "tokenizers/text/listed_tokenizer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "engine/core/index.h"
#include "engine/core/utf8.h"
#include "tokenizers/text/bpe.h"
#include "tokenizers/text/merge_builder.h"
#include "tokenizers/text/model_json.h"
#include "tokenizers/text/patterns.h"
#include "tokenizers/text/slow_tokenizers.h"

namespace tessera {

namespace {

enum class Before : std::uint8_t { kNothing, kPattern, kDigits };

// How a text is cut into words in front of GPT-2's byte alphabet.
struct WordCut {
  std::string_view name;
  Before before = Before::kNothing;
  std::string_view pattern = {};  // kPattern; then GPT-2's own does not follow
  bool composes = false;          // Unicode's normal form C first
  bool ignore_merges = false;
  bool add_begin = false;  // where the file does not say
};
constexpr std::array kCuts = {
    WordCut{.name = "gpt-2"},
    WordCut{
        .name = "qwen2", .before = Before::kPattern, .pattern = kQwen2Pattern, .composes = true},
    WordCut{.name = "deepseek-r1-qwen",
            .before = Before::kPattern,
            .pattern = kQwen2Pattern,
            .composes = true},
    WordCut{.name = "llama-bpe",
            .before = Before::kPattern,
            .pattern = kLlama3Pattern,
            .ignore_merges = true,
            .add_begin = true},
    WordCut{.name = "llama3",
            .before = Before::kPattern,
            .pattern = kLlama3Pattern,
            .ignore_merges = true,
            .add_begin = true},
    WordCut{.name = "smollm", .before = Before::kDigits},
    WordCut{.name = "starcoder", .before = Before::kDigits},
};

[[noreturn]] void refuse_listed(const ListedTokenizer& listed, const char* code, std::string where,
                                std::string expected, std::string found, std::string hint = {}) {
  throw Error({.kind = ErrorKind::kModel,
               .code = code,
               .file = listed.file,
               .where = "key \"tokenizer.ggml." + std::move(where) + "\"",
               .expected = std::move(expected),
               .found = std::move(found),
               .hint = std::move(hint)});
}

const WordCut& cut_of(const ListedTokenizer& listed) {
  std::string known;
  for (const WordCut& cut : kCuts) {
    if (cut.name == listed.cut) return cut;
    known += (known.empty() ? "" : ", ") + std::string(cut.name);
  }
  refuse_listed(listed, "E_TOK_PRE", "pre", known,
                listed.cut.empty() ? "no such key" : in_quotes(listed.cut),
                "convert the model again, or load its folder");
}

void check_tokens(const ListedTokenizer& listed) {
  const std::size_t count = listed.tokens.size();
  if (count == 0 || count > kMaxTokens) {
    refuse_listed(listed, "E_TOK_COUNT", "tokens", "1 to " + std::to_string(kMaxTokens) + " tokens",
                  std::to_string(count));
  }
  if (!listed.kinds.empty() && listed.kinds.size() != count) {
    refuse_listed(listed, "E_TOK_COUNT", "token_type", std::to_string(count) + ", one a token",
                  std::to_string(listed.kinds.size()));
  }
  for (std::size_t id = 0; id < count; ++id) {
    const std::string& token = listed.tokens[id];
    if (!token.empty() && token.size() <= kMaxTokenBytes) continue;
    refuse_listed(
        listed, token.empty() ? "E_TOK_TOKEN_EMPTY" : "E_TOK_TOKEN_LENGTH", "tokens",
        "token " + std::to_string(id) + " of 1 to " + std::to_string(kMaxTokenBytes) + " bytes",
        std::to_string(token.size()));
  }
  const std::pair<const char*, std::optional<std::int32_t>> ids[] = {
      {"bos_token_id", listed.begin},
      {"eos_token_id", listed.end},
      {"unknown_token_id", listed.unknown},
      {"padding_token_id", listed.pad}};
  for (const auto& [key, id] : ids) {
    if (!id || (*id >= 0 && to_size(*id) < count)) continue;
    refuse_listed(listed, "E_TOK_ID", key, "the id of one of " + std::to_string(count) + " tokens",
                  std::to_string(*id));
  }
}

ListedKind kind_of(const ListedTokenizer& listed, std::size_t id) {
  return listed.kinds.empty() ? ListedKind::kNormal : listed.kinds[id];
}

// --- SentencePiece's BPE
// --------------------------------------------------------------------------

TokenRole role_of(const ListedTokenizer& listed, const char* name, std::optional<std::int32_t> id) {
  TokenRole role{.name = name, .token = std::nullopt};
  if (id) {
    AddedToken& token = role.token.emplace();
    token.content = nth(listed.tokens, *id);
    token.special = true;
  }
  return role;
}

TokenizerParts convert_pieces(ListedTokenizer listed) {
  if (listed.scores.size() != listed.tokens.size()) {
    refuse_listed(listed, "E_TOK_COUNT", "scores",
                  std::to_string(listed.tokens.size()) + ", one a token",
                  std::to_string(listed.scores.size()));
  }
  TokenizerConfig config;
  config.class_name = "LlamaTokenizer";
  config.add_prefix_space = {true, listed.space_prefix.value_or(true)};
  config.add_bos_token = {true, listed.add_begin.value_or(true)};
  config.add_eos_token = {true, listed.add_end.value_or(false)};
  config.legacy = {listed.legacy.has_value(), listed.legacy};
  config.roles = {
      role_of(listed, "bos_token", listed.begin), role_of(listed, "eos_token", listed.end),
      role_of(listed, "unk_token", listed.unknown), role_of(listed, "pad_token", listed.pad)};
  SentencePieceModel model;
  model.kind = SentencePieceModel::Kind::kBpe;
  model.byte_fallback = true;
  model.unknown_id = listed.unknown.value_or(0);
  model.unknown_piece = nth(listed.tokens, model.unknown_id);
  std::unordered_set<std::string_view> seen;
  for (std::size_t id = 0; id < listed.tokens.size(); ++id) {
    if (!seen.insert(listed.tokens[id]).second) {
      refuse_listed(listed, "E_TOK_DUPLICATE", "tokens", "each token once",
                    in_quotes(listed.tokens[id]) + " again, as token " + std::to_string(id));
    }
    if (!std::isfinite(listed.scores[id])) {
      refuse_listed(listed, "E_TOK_SCORE", "scores", "a number for token " + std::to_string(id),
                    std::to_string(listed.scores[id]));
    }
    model.pieces.push_back({listed.tokens[id], listed.scores[id],
                            static_cast<SentencePiece::Type>(kind_of(listed, id))});
  }
  return convert_sentencepiece(std::move(model), config, listed.file);
}

// --- BPE over bytes
// -------------------------------------------------------------------------------

MergeTable merges_of(const ListedTokenizer& listed) {
  MergeBuilder merges(listed.tokens, listed.merges.size());
  for (std::size_t i = 0; i < listed.merges.size(); ++i) {
    const std::string_view both = listed.merges[i];
    const std::size_t blank = both.find(' ', 1);
    const std::string at = "merge " + std::to_string(i) + ": ";
    if (blank == std::string_view::npos || blank + 1 == both.size()) {
      refuse_listed(listed, "E_TOK_MERGE_FORM", "merges", at + "two tokens with a space between",
                    in_quotes(both));
    }
    if (const auto fault = merges.add(both.substr(0, blank), both.substr(blank + 1))) {
      refuse_listed(listed, fault->code, "merges", at + fault->expected, fault->found);
    }
  }
  return merges.take();
}

Json pre_tokenizer_json(const WordCut& cut) {
  Json steps = Json::array();
  if (cut.before == Before::kDigits) {
    steps.push_back({{"type", "Digits"}, {"individual_digits", true}});
  }
  if (cut.before == Before::kPattern) {
    steps.push_back({{"type", "Split"},
                     {"pattern", {{"Regex", cut.pattern}}},
                     {"behavior", "Isolated"},
                     {"invert", false}});
  }
  steps.push_back({{"type", "ByteLevel"},
                   {"add_prefix_space", false},
                   {"trim_offsets", true},
                   {"use_regex", cut.before != Before::kPattern}});
  return {{"type", "Sequence"}, {"pretokenizers", steps}};
}

Json template_json(const ListedTokenizer& listed, bool begin, bool end) {
  Json single = Json::array(), specials = Json::object();
  const auto put = [&](bool wanted, std::optional<std::int32_t> id, const char* key) {
    if (!wanted) return;
    if (!id)
      refuse_listed(listed, "E_TOK_ID", key, "an id, as texts get this token", "no such key");
    const std::string& token = nth(listed.tokens, *id);
    single.push_back({{"SpecialToken", {{"id", token}, {"type_id", 0}}}});
    specials[token] = {{"id", token}, {"ids", {*id}}, {"tokens", {token}}};
  };
  put(begin, listed.begin, "bos_token_id");
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  put(end, listed.end, "eos_token_id");
  return {{"type", "TemplateProcessing"},
          {"single", single},
          {"pair", Json::array()},
          {"special_tokens", specials}};
}

Json added_json(const ListedTokenizer& listed) {
  Json out = Json::array();
  for (std::size_t id = 0; id < listed.tokens.size(); ++id) {
    const ListedKind kind = kind_of(listed, id);
    const bool role = listed.begin == to_index(id) || listed.end == to_index(id);
    const bool special = kind == ListedKind::kControl || role;
    if (!special && kind != ListedKind::kUserDefined) continue;
    out.push_back({{"id", id},
                   {"content", listed.tokens[id]},
                   {"single_word", false},
                   {"lstrip", false},
                   {"rstrip", false},
                   {"normalized", false},
                   {"special", special}});
  }
  return out;
}

TokenizerParts convert_bytes(ListedTokenizer listed) {
  const WordCut& cut = cut_of(listed);
  if (listed.space_prefix.value_or(false)) {
    refuse_listed(listed, "E_TOK_SWITCH", "add_space_prefix", "false next to model gpt2", "true");
  }
  Json json = Json::object();
  if (cut.composes) json["normalizer"] = {{"type", "NFC"}};
  json["pre_tokenizer"] = pre_tokenizer_json(cut);
  json["decoder"] = {{"type", "ByteLevel"},
                     {"add_prefix_space", true},
                     {"trim_offsets", true},
                     {"use_regex", true}};
  json["added_tokens"] = added_json(listed);
  const bool begin = listed.add_begin.value_or(cut.add_begin);
  const bool end = listed.add_end.value_or(false);
  if (begin || end) json["post_processor"] = template_json(listed, begin, end);
  MergeTable merges = merges_of(listed);
  BpeOptions options;
  options.ignore_merges = cut.ignore_merges;
  auto words =
      std::make_unique<BpeModel>(std::move(listed.tokens), std::move(merges), std::move(options));
  return read_tokenizer_parts(json, listed.file, std::move(words));
}

// Rows of a table that is longer than its vocabulary have names in files, and none in folders.
void drop_unused_end(ListedTokenizer& listed) {
  std::size_t count = listed.tokens.size();
  while (count > 1 && kind_of(listed, count - 1) == ListedKind::kUnused) --count;
  listed.tokens.resize(count);
  if (!listed.kinds.empty()) listed.kinds.resize(count);
  if (listed.scores.size() > count) listed.scores.resize(count);
}

}  // namespace

std::vector<std::string_view> listed_cuts() {
  std::vector<std::string_view> out;
  for (const WordCut& cut : kCuts) out.push_back(cut.name);
  return out;
}

TokenizerParts convert_listed(ListedTokenizer listed) {
  check_tokens(listed);
  drop_unused_end(listed);
  if (listed.model == "llama") return convert_pieces(std::move(listed));
  if (listed.model == "gpt2") return convert_bytes(std::move(listed));
  refuse_listed(listed, "E_TOK_MODEL", "model", "llama or gpt2",
                listed.model.empty() ? "no such key" : in_quotes(listed.model),
                "load the model's folder with its tokenizer.json");
}

}  // namespace tessera
