// See model_json.h.
#include "tokenizers/text/model_json.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/core/index.h"
#include "tokenizers/text/bpe.h"
#include "tokenizers/text/merge_builder.h"
#include "tokenizers/text/tokenizer.h"
#include "tokenizers/text/tokenizer_json.h"
#include "tokenizers/text/unigram.h"
#include "tokenizers/text/word_piece.h"

namespace tessera {

std::string in_quotes(std::string_view token) {
  return "\"" + std::string(token.substr(0, 60)) + (token.size() > 60 ? "...\"" : "\"");
}

void check_token(const JsonNode& place, std::string_view token) {
  if (token.empty()) place.fail("E_TOK_TOKEN_EMPTY", "tokens of at least one byte", "an empty one");
  if (token.size() > kMaxTokenBytes) {
    place.fail("E_TOK_TOKEN_LENGTH",
               "tokens of at most " + std::to_string(kMaxTokenBytes) + " bytes",
               std::to_string(token.size()) + " bytes");
  }
}

std::size_t read_token_id(const JsonNode& node, std::size_t token_count) {
  const auto id = to_size(node.integer(0, to_index(kMaxTokens) - 1));
  if (id >= token_count) {
    node.fail("E_TOK_ID_HOLE",
              "ids below " + std::to_string(token_count) + ", the number of tokens",
              std::to_string(id));
  }
  return id;
}

std::vector<std::string> read_vocab(const JsonNode& node, std::size_t added_count) {
  if (!node.is_object()) node.fail("E_TOK_TYPE", "an object", node.describe());
  const Json& json = node.json();
  if (json.empty()) node.fail("E_TOK_VOCAB_EMPTY", "at least one token", "none");
  if (json.size() > kMaxTokens) {
    node.fail("E_TOK_COUNT", "at most " + std::to_string(kMaxTokens) + " tokens",
              std::to_string(json.size()));
  }
  std::vector<std::string> out;
  out.reserve(json.size());
  for (const auto& entry : json.items()) {
    const std::string& token = entry.key();
    const JsonNode place(entry.value(), node.file(), node.path() + "[" + in_quotes(token) + "]");
    check_token(place, token);
    const std::size_t id = read_token_id(place, json.size() + added_count);
    if (id >= out.size()) out.resize(id + 1);
    if (!out[id].empty()) {
      place.fail("E_TOK_ID_DUPLICATE", "each id once",
                 std::to_string(id) + ", which " + in_quotes(out[id]) + " has");
    }
    out[id] = token;
  }
  return out;
}

namespace {

// Text that is put before or after a character: short, as it is copied for each.
constexpr std::size_t kMaxAffixBytes = 64;

// "a b" or ["a", "b"].
std::pair<std::string, std::string> read_merge(const JsonNode& node) {
  if (node.is_array()) {
    const auto parts = node.items(kMaxTokens);
    if (parts.size() != 2) node.fail("E_TOK_MERGE_FORM", "two tokens", node.describe());
    return {parts[0].text(), parts[1].text()};
  }
  const std::string both = node.text();
  const std::size_t space = both.find(' ');
  if (space == std::string::npos || both.find(' ', space + 1) != std::string::npos) {
    node.fail("E_TOK_MERGE_FORM", "two tokens with one space between", node.describe());
  }
  return {both.substr(0, space), both.substr(space + 1)};
}

MergeTable read_merges(const JsonNode& node, const std::vector<std::string>& tokens,
                       std::size_t prefix_bytes) {
  if (!node.is_array()) node.fail("E_TOK_TYPE", "an array", node.describe());
  const Json& json = node.json();
  if (json.size() > kMaxTokens) {
    node.fail("E_TOK_COUNT", "at most " + std::to_string(kMaxTokens) + " merges",
              std::to_string(json.size()));
  }
  MergeBuilder merges(tokens, json.size(), prefix_bytes);
  for (std::size_t i = 0; i < json.size(); ++i) {
    const JsonNode place(json[i], node.file(), node.path() + "[" + std::to_string(i) + "]");
    if (place.is_string() && place.text().starts_with("#version")) continue;
    const auto [left, right] = read_merge(place);
    if (const auto fault = merges.add(left, right))
      place.fail(fault->code, fault->expected, fault->found);
  }
  return merges.take();
}

std::string read_affix(const JsonNode& node, std::string_view key) {
  if (!node.has(key)) return {};
  std::string text = node.at(key).text();
  if (text.size() > kMaxAffixBytes) {
    node.at(key).fail("E_TOK_AFFIX", "at most " + std::to_string(kMaxAffixBytes) + " bytes",
                      std::to_string(text.size()) + " bytes");
  }
  return text;
}

std::int32_t read_unknown(const JsonNode& node, const std::vector<std::string>& tokens) {
  const std::string unknown = node.text();
  const auto found = std::find(tokens.begin(), tokens.end(), unknown);
  if (unknown.empty() || found == tokens.end()) {
    node.fail("E_TOK_UNKNOWN", "a token of the vocabulary", in_quotes(unknown));
  }
  return narrow<std::int32_t>(found - tokens.begin());
}

std::unique_ptr<const WordModel> read_bpe(const JsonNode& node, std::size_t added_count) {
  node.only({"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
             "byte_fallback", "ignore_merges", "vocab", "merges"});
  if (node.has("dropout")) {
    const JsonNode dropout = node.at("dropout");
    if (!dropout.json().is_number()) dropout.fail("E_TOK_TYPE", "a number", dropout.describe());
    if (dropout.json().get<double>() != 0)
      dropout.fail("E_TOK_DROPOUT", "null or 0", dropout.describe());
  }
  BpeOptions options;
  options.prefix = read_affix(node, "continuing_subword_prefix");
  options.suffix = read_affix(node, "end_of_word_suffix");
  options.fuse_unknown = node.boolean_or("fuse_unk", false);
  options.byte_fallback = node.boolean_or("byte_fallback", false);
  options.ignore_merges = node.boolean_or("ignore_merges", false);
  std::vector<std::string> tokens = read_vocab(node.at("vocab"), added_count);
  MergeTable merges = read_merges(node.at("merges"), tokens, options.prefix.size());
  if (node.has("unk_token")) options.unknown = read_unknown(node.at("unk_token"), tokens);
  return std::make_unique<BpeModel>(std::move(tokens), std::move(merges), std::move(options));
}

std::unique_ptr<const WordModel> read_unigram(const JsonNode& node) {
  node.only({"unk_id", "vocab", "byte_fallback"});
  const auto entries = node.at("vocab").items(kMaxTokens);
  if (entries.empty()) node.at("vocab").fail("E_TOK_VOCAB_EMPTY", "at least one token", "none");
  std::vector<std::string> tokens;
  std::vector<double> scores;
  for (const JsonNode& entry : entries) {
    const auto pair = entry.items(2);
    if (pair.size() != 2) entry.fail("E_TOK_TYPE", "a token and its score", entry.describe());
    tokens.push_back(pair[0].text());
    check_token(pair[0], tokens.back());
    if (!pair[1].json().is_number()) pair[1].fail("E_TOK_TYPE", "a number", pair[1].describe());
    scores.push_back(pair[1].json().get<double>());
    if (!std::isfinite(scores.back()))
      pair[1].fail("E_TOK_RANGE", "a finite number", pair[1].describe());
  }
  UnigramOptions options{.file = node.file()};
  options.byte_fallback = node.boolean_or("byte_fallback", false);
  if (node.has("unk_id")) {
    options.unknown = narrow<std::int32_t>(node.at("unk_id").integer(0, std::ssize(tokens) - 1));
  }
  return std::make_unique<UnigramModel>(std::move(tokens), std::move(scores), std::move(options));
}

std::unique_ptr<const WordModel> read_word_piece(const JsonNode& node, std::size_t added_count) {
  node.only({"unk_token", "continuing_subword_prefix", "max_input_chars_per_word", "vocab"});
  std::vector<std::string> tokens = read_vocab(node.at("vocab"), added_count);
  WordPieceOptions options{.unknown = read_unknown(node.at("unk_token"), tokens)};
  options.prefix = read_affix(node, "continuing_subword_prefix");
  constexpr auto kMax = to_index(TextTokenizer::kMaxTextBytes);
  options.max_characters = to_size(node.at("max_input_chars_per_word").integer(0, kMax));
  return std::make_unique<WordPieceModel>(std::move(tokens), std::move(options));
}

// Files of the first versions leave the type out; other fields tell it.
std::string model_type(const JsonNode& node) {
  if (node.has("type")) return node.at("type").text();
  if (node.has("merges")) return "BPE";
  if (node.has("max_input_chars_per_word")) return "WordPiece";
  if (node.has("unk_id")) return "Unigram";
  return node.at("type").text();
}

}  // namespace

std::unique_ptr<const WordModel> read_model(const JsonNode& node, std::size_t added_count) {
  const std::string type = model_type(node);
  if (type == "BPE") return read_bpe(node, added_count);
  if (type == "Unigram") return read_unigram(node);
  if (type == "WordPiece") return read_word_piece(node, added_count);
  node.at("type").fail("E_TOK_MODEL", "BPE, Unigram or WordPiece", node.at("type").describe());
}

}  // namespace tessera
