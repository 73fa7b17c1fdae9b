// See tokenizer_json.h: added tokens and templates. The model is read by model_json.cpp, the other
// components by component_json.cpp.
#include "tokenizers/text/tokenizer_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/core/index.h"
#include "tokenizers/text/component_json.h"
#include "tokenizers/text/json_node.h"
#include "tokenizers/text/model_json.h"
#include "tokenizers/text/tokenizer.h"

namespace tessera {

namespace {

// Adds one entry of added_tokens; its id must be the vocabulary's where it is a token of it.
void read_added_token(const JsonNode& node, std::size_t token_count, TokenizerParts& parts) {
  const WordModel& model = *parts.model;
  node.only({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
  AddedToken token;
  token.id = narrow<std::int32_t>(read_token_id(node.at("id"), token_count));
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
        id < to_size(parts.model->size()) && !parts.model->token(narrow<std::int32_t>(id)).empty();
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
    const std::int64_t value = id.integer(0, to_index(kMaxTokens) - 1);
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

// BertProcessing and RobertaProcessing: one token before the text, one after it.
IdTemplate read_frame(const JsonNode& node, std::int64_t vocab_size) {
  const auto id_of = [&](std::string_view key) {
    const auto pair = node.at(key).items(2);
    if (pair.size() != 2)
      node.at(key).fail("E_TOK_TEMPLATE", "a token and its id", node.describe());
    return narrow<std::int32_t>(pair[1].integer(0, vocab_size - 1));
  };
  return {{id_of("cls")}, {id_of("sep")}};
}

std::vector<IdTemplate> read_post_processor(const JsonNode& root, std::int64_t vocab_size) {
  std::vector<IdTemplate> out;
  for (const auto& [node, type] : flatten_components(root, "processors")) {
    if (type == "TemplateProcessing") {
      out.push_back(read_template(node, vocab_size));
    } else if (type == "ByteLevel") {
      node.only({"add_prefix_space", "trim_offsets", "use_regex"});  // moves offsets, never ids
    } else if (type == "BertProcessing") {
      node.only({"sep", "cls"});
      out.push_back(read_frame(node, vocab_size));
    } else if (type == "RobertaProcessing") {
      node.only({"sep", "cls", "trim_offsets", "add_prefix_space"});
      out.push_back(read_frame(node, vocab_size));
    } else {
      node.at("type").fail(
          "E_TOK_POSTPROCESSOR",
          "TemplateProcessing, BertProcessing, RobertaProcessing, ByteLevel or Sequence",
          node.at("type").describe());
    }
  }
  return out;
}

// Settings of batches, which encoding one text whole never uses.
void note_unused(const JsonNode& root, std::string_view key, TokenizerParts& parts) {
  if (!root.has(key)) return;
  const JsonNode node = root.at(key);
  if (!node.is_object()) node.fail("E_TOK_TYPE", "null or an object", node.describe());
  parts.notes.push_back({"tokenizer.json", std::string(key), true, "one text is encoded whole"});
}

}  // namespace

TokenizerParts read_tokenizer_parts(const Json& json, const std::string& file,
                                    std::unique_ptr<const WordModel> model) {
  const JsonNode root(json, file, "$");
  const std::vector<JsonNode> added = root.has("added_tokens")
                                          ? root.at("added_tokens").items(kMaxTokens)
                                          : std::vector<JsonNode>{};
  TokenizerParts parts{
      .file = file,
      .model = model ? std::move(model) : read_model(root.at("model"), added.size()),
      .raw_finder = AddedTokenFinder({}),
      .normal_finder = AddedTokenFinder({})};
  note_unused(root, "truncation", parts);
  note_unused(root, "padding", parts);
  if (root.has("normalizer")) parts.normalizer = read_normalizer(root.at("normalizer"));
  if (root.has("pre_tokenizer")) parts.pre_tokenizer = read_pre_tokenizer(root.at("pre_tokenizer"));
  if (root.has("decoder")) parts.decoder = read_decoder(root.at("decoder"));
  parts.added_by_id.assign(to_size(parts.model->size()), -1);
  const std::size_t token_count = to_size(parts.model->size()) + added.size();
  for (const JsonNode& node : added) read_added_token(node, token_count, parts);
  if (!added.empty()) build_finders(root.at("added_tokens"), parts);
  check_dense(root, parts);
  if (root.has("post_processor")) {
    const auto vocab_size = std::ssize(parts.added_by_id);
    parts.templates = read_post_processor(root.at("post_processor"), vocab_size);
  }
  return parts;
}

Json parse_tokenizer_json(std::string_view text, const std::string& file) {
  const JsonLimits limits{TextTokenizer::kMaxFileBytes, 64, ErrorKind::kModel};
  Json json = parse_json(text, file, limits);
  const JsonNode root(json, file, "$");
  if (!root.is_object()) root.fail("E_TOK_TYPE", "an object", root.describe());
  root.only({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
             "post_processor", "decoder", "model"});
  if (root.has("version") && root.at("version").text() != "1.0") {
    root.at("version").fail("E_TOK_VERSION", "\"1.0\"", root.at("version").describe());
  }
  return json;
}

TokenizerParts read_tokenizer_json(std::string_view text, const std::string& file) {
  return read_tokenizer_parts(parse_tokenizer_json(text, file), file, nullptr);
}

}  // namespace tessera
