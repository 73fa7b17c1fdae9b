// See tokenizer_json.h: vocabulary, merges, added tokens and templates. Components are read by
// component_json.cpp.
#include "tokenizers/text/tokenizer_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/core/index.h"
#include "tokenizers/text/component_json.h"
#include "tokenizers/text/json_node.h"
#include "tokenizers/text/tokenizer.h"

namespace tessera {

namespace {

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

constexpr auto kMaxId = to_index(kMaxTokens) - 1;

// An id that leaves a hole even if every token has one below it: refused before memory is taken.
std::size_t read_id(const JsonNode& node, std::size_t token_count) {
  const auto id = to_size(node.integer(0, kMaxId));
  if (id >= token_count) {
    node.fail("E_TOK_ID_HOLE",
              "ids below " + std::to_string(token_count) + ", the number of tokens",
              std::to_string(id));
  }
  return id;
}

// Tokens by id; ids that the vocabulary leaves out stay empty here (added tokens may take them).
// `added_count` tokens are listed outside the vocabulary.
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
    const std::size_t id = read_id(place, json.size() + added_count);
    if (id >= out.size()) out.resize(id + 1);
    if (!out[id].empty()) {
      place.fail("E_TOK_ID_DUPLICATE", "each id once",
                 std::to_string(id) + ", which " + in_quotes(out[id]) + " has");
    }
    out[id] = token;
  }
  return out;
}

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

MergeTable read_merges(const JsonNode& node, const std::vector<std::string>& tokens) {
  std::unordered_map<std::string_view, std::int32_t> ids;
  ids.reserve(tokens.size());
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    if (!tokens[id].empty()) ids.emplace(tokens[id], narrow<std::int32_t>(id));
  }
  if (!node.is_array()) node.fail("E_TOK_TYPE", "an array", node.describe());
  const Json& json = node.json();
  if (json.size() > kMaxTokens) {
    node.fail("E_TOK_COUNT", "at most " + std::to_string(kMaxTokens) + " merges",
              std::to_string(json.size()));
  }
  MergeTable table(json.size());
  for (std::size_t i = 0; i < json.size(); ++i) {
    const JsonNode place(json[i], node.file(), node.path() + "[" + std::to_string(i) + "]");
    if (place.is_string() && place.text().starts_with("#version")) continue;
    const auto [left, right] = read_merge(place);
    const auto find = [&](const std::string& token, const char* code, const char* what) {
      const auto found = ids.find(token);
      if (found == ids.end()) place.fail(code, what, in_quotes(token));
      return found->second;
    };
    const std::int32_t left_id = find(left, "E_TOK_MERGE_UNKNOWN", "tokens of the vocabulary");
    const std::int32_t right_id = find(right, "E_TOK_MERGE_UNKNOWN", "tokens of the vocabulary");
    const std::int32_t result =
        find(left + right, "E_TOK_MERGE_RESULT", "the merged token in the vocabulary");
    table.set(left_id, right_id, {narrow<std::uint32_t>(i), result});
  }
  return table;
}

void refuse_affix(const JsonNode& node, std::string_view key) {
  if (node.has(key) && !node.at(key).text().empty()) {
    node.at(key).fail("E_TOK_AFFIX", "null or an empty string", node.at(key).describe());
  }
}

BpeModel read_model(const JsonNode& node, std::size_t added_count) {
  // Files of the first versions leave the type out; merges mark them as BPE.
  const std::string type = node.has("type") || !node.has("merges") ? node.at("type").text() : "BPE";
  if (type != "BPE") node.at("type").fail("E_TOK_MODEL", "BPE", node.at("type").describe());
  node.only({"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
             "byte_fallback", "ignore_merges", "vocab", "merges"});
  if (node.has("dropout")) {
    const JsonNode dropout = node.at("dropout");
    if (!dropout.json().is_number()) dropout.fail("E_TOK_TYPE", "a number", dropout.describe());
    if (dropout.json().get<double>() != 0)
      dropout.fail("E_TOK_DROPOUT", "null or 0", dropout.describe());
  }
  refuse_affix(node, "continuing_subword_prefix");
  refuse_affix(node, "end_of_word_suffix");
  std::vector<std::string> tokens = read_vocab(node.at("vocab"), added_count);
  MergeTable merges = read_merges(node.at("merges"), tokens);
  BpeOptions options;
  options.fuse_unknown = node.boolean_or("fuse_unk", false);
  options.byte_fallback = node.boolean_or("byte_fallback", false);
  options.ignore_merges = node.boolean_or("ignore_merges", false);
  if (node.has("unk_token")) {
    const std::string unknown = node.at("unk_token").text();
    const auto found = std::find(tokens.begin(), tokens.end(), unknown);
    if (unknown.empty() || found == tokens.end()) {
      node.at("unk_token").fail("E_TOK_UNKNOWN", "a token of the vocabulary", in_quotes(unknown));
    }
    options.unknown = narrow<std::int32_t>(found - tokens.begin());
  }
  return {std::move(tokens), std::move(merges), options};
}

// Adds one entry of added_tokens; its id must be the vocabulary's where it is a token of it.
void read_added_token(const JsonNode& node, std::size_t token_count, TokenizerParts& parts) {
  const BpeModel& model = parts.model;
  node.only({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
  AddedToken token;
  token.id = narrow<std::int32_t>(read_id(node.at("id"), token_count));
  token.content = node.at("content").text();
  check_token(node.at("content"), token.content);
  token.single_word = node.at("single_word").boolean();
  token.lstrip = node.at("lstrip").boolean();
  token.rstrip = node.at("rstrip").boolean();
  token.normalized = node.at("normalized").boolean();
  token.special = node.at("special").boolean();
  const auto known = model.id_of(token.content);
  if (known && *known != token.id) {
    node.at("id").fail(
        "E_TOK_ADDED_ID",
        std::to_string(*known) + ", the id of " + in_quotes(token.content) + " in the vocabulary",
        std::to_string(token.id));
  }
  const bool taken = !known && token.id < model.size() && !model.token(token.id).empty();
  if (taken) {
    node.at("id").fail(
        "E_TOK_ADDED_TAKEN", "an id of its own",
        std::to_string(token.id) + ", which " + in_quotes(model.token(token.id)) + " has");
  }
  if (!parts.added_ids.emplace(token.content, token.id).second) {
    node.at("content").fail("E_TOK_ADDED_DUPLICATE", "each added token once",
                            in_quotes(token.content) + " again");
  }
  if (to_size(token.id) >= parts.added_by_id.size()) {
    parts.added_by_id.resize(to_size(token.id) + 1, -1);
  }
  std::int32_t& slot = nth(parts.added_by_id, token.id);
  if (slot >= 0) {
    node.at("id").fail(
        "E_TOK_ADDED_ID_DUPLICATE", "each id once",
        std::to_string(token.id) + ", which " + in_quotes(nth(parts.added, slot).content) + " has");
  }
  slot = narrow<std::int32_t>(parts.added.size());
  parts.added.push_back(std::move(token));
}

void check_dense(const JsonNode& root, const TokenizerParts& parts) {
  for (std::size_t id = 0; id < parts.added_by_id.size(); ++id) {
    const bool in_model =
        id < to_size(parts.model.size()) && !parts.model.token(narrow<std::int32_t>(id)).empty();
    if (!in_model && parts.added_by_id[id] < 0) {
      root.fail("E_TOK_ID_HOLE",
                "a token for every id below " + std::to_string(parts.added_by_id.size()),
                "none for id " + std::to_string(id));
    }
  }
}

// The two finders, special tokens first as in the reference. Tokens that are looked for in
// normalised text are normalised themselves.
void build_finders(const JsonNode& node, TokenizerParts& parts) {
  for (AddedToken& token : parts.added) {
    token.shown = token.content;
    if (!token.normalized) continue;
    RegexScratch scratch(token.content.size(), parts.file);
    token.shown = normalize(parts.normalizer, token.content, scratch, parts.file);
    if (token.shown.empty()) {
      node.fail("E_TOK_ADDED_VANISHES", "added tokens that survive the normaliser",
                in_quotes(token.content));
    }
  }
  std::vector<AddedToken> raw, normal;
  for (const bool special : {true, false}) {
    for (const AddedToken& token : parts.added) {
      if (token.special != special) continue;
      auto& list = token.normalized ? normal : raw;
      list.push_back(token);
      list.back().content = token.shown;
    }
  }
  parts.raw_finder = AddedTokenFinder(std::move(raw));
  parts.normal_finder = AddedTokenFinder(std::move(normal));
}

// The ids a template names for one of its special tokens.
std::vector<std::int32_t> template_ids(const JsonNode& node, const JsonNode& specials,
                                       std::int64_t vocab_size) {
  const std::string name = node.at("id").text();
  if (!specials.has(name)) {
    node.at("id").fail("E_TOK_TEMPLATE_TOKEN", "a name listed in special_tokens", in_quotes(name));
  }
  std::vector<std::int32_t> out;
  for (const JsonNode& id : specials.at(name).at("ids").items(kMaxSpecialIds)) {
    const std::int64_t value = id.integer(0, kMaxId);
    if (value >= vocab_size) {
      id.fail("E_TOK_TEMPLATE_ID", "an id below " + std::to_string(vocab_size),
              std::to_string(value));
    }
    out.push_back(narrow<std::int32_t>(value));
  }
  return out;
}

IdTemplate read_template(const JsonNode& node, std::int64_t vocab_size) {
  node.only({"single", "pair", "special_tokens"});
  IdTemplate out;
  bool after = false;
  const JsonNode single = node.at("single");
  for (const JsonNode& piece : single.items(kMaxSpecialIds)) {
    if (piece.has("Sequence")) {
      const JsonNode sequence = piece.at("Sequence");
      if (after || sequence.at("id").text() != "A") {
        piece.fail("E_TOK_TEMPLATE", "the sequence A once", piece.describe());
      }
      after = true;
      continue;
    }
    if (!piece.has("SpecialToken"))
      piece.fail("E_TOK_TEMPLATE", "Sequence or SpecialToken", piece.describe());
    auto& side = after ? out.after : out.before;
    const auto ids = template_ids(piece.at("SpecialToken"), node.at("special_tokens"), vocab_size);
    side.insert(side.end(), ids.begin(), ids.end());
  }
  if (!after) single.fail("E_TOK_TEMPLATE", "the sequence A once", "a template without it");
  return out;
}

std::vector<IdTemplate> read_post_processor(const JsonNode& root, std::int64_t vocab_size) {
  std::vector<IdTemplate> out;
  for (const auto& [node, type] : flatten_components(root, "processors")) {
    if (type == "TemplateProcessing") {
      out.push_back(read_template(node, vocab_size));
    } else if (type == "ByteLevel") {
      node.only({"add_prefix_space", "trim_offsets", "use_regex"});  // moves offsets, never ids
    } else {
      node.at("type").fail("E_TOK_POSTPROCESSOR", "TemplateProcessing, ByteLevel or Sequence",
                           node.at("type").describe());
    }
  }
  return out;
}

void refuse_set(const JsonNode& root, std::string_view key, const char* code) {
  if (root.has(key)) root.at(key).fail(code, "null", root.at(key).describe());
}

}  // namespace

TokenizerParts read_tokenizer_json(std::string_view text, const std::string& file) {
  const JsonLimits limits{TextTokenizer::kMaxFileBytes, 64, ErrorKind::kModel};
  const Json json = parse_json(text, file, limits);
  const JsonNode root(json, file, "$");
  if (!root.is_object()) root.fail("E_TOK_TYPE", "an object", root.describe());
  root.only({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
             "post_processor", "decoder", "model"});
  if (root.has("version") && root.at("version").text() != "1.0") {
    root.at("version").fail("E_TOK_VERSION", "\"1.0\"", root.at("version").describe());
  }
  refuse_set(root, "truncation", "E_TOK_TRUNCATION");
  refuse_set(root, "padding", "E_TOK_PADDING");
  const std::vector<JsonNode> added = root.has("added_tokens")
                                          ? root.at("added_tokens").items(kMaxTokens)
                                          : std::vector<JsonNode>{};
  TokenizerParts parts{.file = file,
                       .model = read_model(root.at("model"), added.size()),
                       .raw_finder = AddedTokenFinder({}),
                       .normal_finder = AddedTokenFinder({})};
  if (root.has("normalizer")) parts.normalizer = read_normalizer(root.at("normalizer"));
  if (root.has("pre_tokenizer")) parts.pre_tokenizer = read_pre_tokenizer(root.at("pre_tokenizer"));
  if (root.has("decoder")) parts.decoder = read_decoder(root.at("decoder"));
  parts.added_by_id.assign(to_size(parts.model.size()), -1);
  const std::size_t token_count = to_size(parts.model.size()) + added.size();
  for (const JsonNode& node : added) read_added_token(node, token_count, parts);
  if (!added.empty()) build_finders(root.at("added_tokens"), parts);
  check_dense(root, parts);
  if (root.has("post_processor")) {
    const auto vocab_size = std::ssize(parts.added_by_id);
    parts.templates = read_post_processor(root.at("post_processor"), vocab_size);
  }
  return parts;
}

}  // namespace tessera
