// SentencePiece's pieces as the reference converts them: a BPE model's merges are all ways to cut a
// piece into two pieces, the best score first; the rest is the class of the tokenizer.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>
#include <unordered_map>

#include "engine/core/index.h"
#include "tokenizers/text/bpe.h"
#include "tokenizers/text/charsmap.h"
#include "tokenizers/text/model_json.h"
#include "tokenizers/text/piece_json.h"
#include "tokenizers/text/slow_tokenizers.h"
#include "tokenizers/text/unigram.h"

namespace tessera {

namespace {

// Looking up the parts of a piece of n bytes costs n * n; of a whole file at most this.
constexpr std::uint64_t kMaxMergeWork = std::uint64_t{1} << 30;
struct ScoredMerge {
  double score;
  std::size_t left_length, right_length;  // in characters
  std::int32_t left, right, result;
};

// What a class of tokenizer makes of the pieces.
struct Vocabulary {
  std::vector<std::string> tokens;
  std::vector<double> scores;
};

std::size_t piece_characters(std::string_view text) {
  return to_size(
      std::count_if(text.begin(), text.end(), [](char c) { return (byte_of(c) & 0xc0) != 0x80; }));
}

void add_cuts(const Vocabulary& vocabulary, std::int32_t piece,
              const std::unordered_map<std::string_view, std::int32_t>& ids,
              std::vector<ScoredMerge>& out) {
  const std::string_view text = nth(vocabulary.tokens, piece);
  const std::size_t first = out.size(), characters = piece_characters(text);
  std::size_t left_length = 0;
  for (std::size_t cut = 1; cut < text.size(); ++cut) {
    if ((byte_of(text[cut]) & 0xc0) == 0x80) continue;
    ++left_length;
    const auto left = ids.find(text.substr(0, cut));
    if (left == ids.end()) continue;
    const auto right = ids.find(text.substr(cut));
    if (right == ids.end()) continue;
    out.push_back({nth(vocabulary.scores, piece), left_length, characters - left_length,
                   left->second, right->second, piece});
  }
  std::sort(out.begin() + to_index(first), out.end(),
            [](const ScoredMerge& a, const ScoredMerge& b) {
              return std::pair(a.left, a.right) < std::pair(b.left, b.right);
            });
}

MergeTable merges_of(const Vocabulary& vocabulary, const std::string& file) {
  std::unordered_map<std::string_view, std::int32_t> ids;
  ids.reserve(vocabulary.tokens.size());
  std::uint64_t work = 0;
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    ids.emplace(vocabulary.tokens[id], narrow<std::int32_t>(id));
    work += std::uint64_t{vocabulary.tokens[id].size()} * vocabulary.tokens[id].size();
  }
  if (work > kMaxMergeWork) {
    throw Error({.kind = ErrorKind::kModel,
                 .code = "E_TOK_TOKEN_LENGTH",
                 .file = file,
                 .where = "pieces",
                 .expected = "lengths whose squares add up to at most " +
                             std::to_string(kMaxMergeWork) + " in a BPE model",
                 .found = std::to_string(work)});
  }
  std::vector<ScoredMerge> merges;
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id)
    add_cuts(vocabulary, narrow<std::int32_t>(id), ids, merges);
  std::stable_sort(merges.begin(), merges.end(), [](const ScoredMerge& a, const ScoredMerge& b) {
    return std::tie(a.score, a.left_length, a.right_length) >
           std::tie(b.score, b.left_length, b.right_length);
  });
  MergeTable table(merges.size());
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const ScoredMerge& merge = merges[rank];
    table.set(merge.left, merge.right, {narrow<std::uint32_t>(rank), merge.result});
  }
  return table;
}

std::unique_ptr<const WordModel> make_model(const SentencePieceModel& model, Vocabulary vocabulary,
                                            std::int32_t unknown_id, bool byte_fallback,
                                            const std::string& file) {
  if (model.kind == SentencePieceModel::Kind::kUnigram) {
    return std::make_unique<UnigramModel>(
        std::move(vocabulary.tokens), std::move(vocabulary.scores),
        UnigramOptions{.unknown = unknown_id, .byte_fallback = byte_fallback, .file = file});
  }
  MergeTable merges = merges_of(vocabulary, file);
  const auto unknown =
      std::find(vocabulary.tokens.begin(), vocabulary.tokens.end(), model.unknown_piece);
  if (unknown == vocabulary.tokens.end()) {
    throw Error({.kind = ErrorKind::kModel,
                 .code = "E_TOK_UNKNOWN",
                 .file = file,
                 .where = "trainer_spec.unk_piece",
                 .expected = "a piece",
                 .found = in_quotes(model.unknown_piece)});
  }
  BpeOptions options;
  options.unknown = narrow<std::int32_t>(unknown - vocabulary.tokens.begin());
  options.fuse_unknown = true;
  options.byte_fallback = byte_fallback;
  return std::make_unique<BpeModel>(std::move(vocabulary.tokens), std::move(merges),
                                    std::move(options));
}

// Control pieces are special, those that users defined are not; both are looked for in raw text.
std::vector<AddedToken> own_tokens(const SentencePieceModel& model) {
  std::vector<AddedToken> out;
  for (const SentencePiece& piece : model.pieces) {
    const bool control = piece.type == SentencePiece::Type::kControl;
    if (!control && piece.type != SentencePiece::Type::kUserDefined) continue;
    AddedToken& token = out.emplace_back();
    token.content = piece.text;
    token.special = control;
  }
  return out;
}

bool wants_prefix(const TokenizerConfig& config) {
  return !config.add_prefix_space.present || config.add_prefix_space.value.value_or(false);
}

bool is_legacy(const TokenizerConfig& config) { return config.legacy.value.value_or(true); }

Json spaces_json(const TokenizerConfig& config, bool split) {
  const char* scheme = !wants_prefix(config) ? "never" : is_legacy(config) ? "always" : "first";
  return metaspace_json(scheme, split);
}

// The special tokens that stand before and after a text, of those that are wanted.
Json template_json(const std::vector<AddedToken>& before, const std::vector<AddedToken>& after,
                   const Json& added) {
  Json single = Json::array(), specials = Json::object();
  const auto put = [&](const AddedToken& token) {
    single.push_back({{"SpecialToken", {{"id", token.content}, {"type_id", 0}}}});
    for (const Json& entry : added) {
      if (entry["content"] == token.content)
        specials[token.content] = {{"id", token.content}, {"ids", Json::array({entry["id"]})}};
    }
  };
  for (const AddedToken& token : before) put(token);
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  for (const AddedToken& token : after) put(token);
  return {{"type", "TemplateProcessing"},
          {"single", single},
          {"pair", Json::array()},
          {"special_tokens", specials}};
}

[[noreturn]] void fail_missing_special(const TokenizerConfig& config, const std::string& file,
                                       const char* which) {
  throw Error({.kind = ErrorKind::kModel,
               .code = "E_TOK_SPECIAL",
               .file = config.file.empty() ? file : config.file,
               .where = which,
               .expected = "a token, as texts get it",
               .found = "null"});
}

TokenizerParts convert_llama(const SentencePieceModel& model, const TokenizerConfig& config,
                             const std::string& file) {
  Vocabulary vocabulary;
  for (std::size_t id = 0; id < model.pieces.size(); ++id) {
    vocabulary.tokens.push_back(model.pieces[id].text);
    // The reference gives the first three, <unk> <s> </s>, no score.
    vocabulary.scores.push_back(id < 3 ? 0.0 : double{model.pieces[id].score});
  }
  auto words = make_model(model, std::move(vocabulary), 0, true, file);
  std::vector<AddedToken> roles;
  const auto put = [&](const char* role, const char* fallback) {
    auto token = special_token(config, role, fallback, false);
    if (token) roles.push_back(*token);
    return token;
  };
  const auto begin = put("bos_token", "<s>"), end = put("eos_token", "</s>");
  for (const char* role : {"unk_token", "sep_token", "pad_token", "cls_token", "mask_token"})
    put(role, std::string_view(role) == "unk_token" ? "<unk>" : "");
  Json json = Json::object();
  json["added_tokens"] = added_tokens_json(*words, own_tokens(model), config, roles);
  const bool prefix = wants_prefix(config);
  if (is_legacy(config)) {
    Json steps = Json::array();
    if (prefix) steps.push_back({{"type", "Prepend"}, {"prepend", kPieceSpace}});
    steps.push_back(replace_json("String", " ", kPieceSpace));
    json["normalizer"] = {{"type", "Sequence"}, {"normalizers", steps}};
  } else {
    json["pre_tokenizer"] = spaces_json(config, false);
  }
  json["decoder"] = piece_decoder(prefix);
  const bool add_begin =
      !config.add_bos_token.present || config.add_bos_token.value.value_or(false);
  const bool add_end = config.add_eos_token.value.value_or(false);
  if (add_begin && !begin) fail_missing_special(config, file, "bos_token");
  if (add_end && !end) fail_missing_special(config, file, "eos_token");
  std::vector<AddedToken> before, after;
  if (add_begin) before.push_back(*begin);
  if (add_end) after.push_back(*end);
  json["post_processor"] = template_json(before, after, json["added_tokens"]);
  return read_tokenizer_parts(json, file, std::move(words));
}

TokenizerParts convert_t5(const SentencePieceModel& model, const TokenizerConfig& config,
                          const std::string& file) {
  Vocabulary vocabulary;
  for (const SentencePiece& piece : model.pieces) {
    vocabulary.tokens.push_back(piece.text);
    vocabulary.scores.push_back(double{piece.score});
  }
  TokenizerConfig own = config;
  for (std::int64_t i = config.extra_ids - 1; i >= 0; --i) {
    vocabulary.tokens.push_back("<extra_id_" + std::to_string(i) + ">");
    vocabulary.scores.push_back(0);
  }
  const bool named = std::any_of(
      config.additional.begin(), config.additional.end(),
      [](const auto& r) { return r.token->content.find("<extra_id_") != std::string::npos; });
  for (std::int64_t i = 0; i < config.extra_ids && !named; ++i) {
    TokenRole& role = own.additional.emplace_back();
    role.only_text = true;
    role.token.emplace();
    role.token->content = "<extra_id_" + std::to_string(i) + ">";
    role.token->special = true;
  }
  auto words = make_model(model, std::move(vocabulary), model.unknown_id, false, file);
  std::vector<AddedToken> roles;
  const auto put = [&](const char* role, const char* fallback) {
    auto token = special_token(config, role, fallback, false);
    if (token) roles.push_back(*token);
    return token;
  };
  put("bos_token", "");
  const auto end = put("eos_token", "</s>");
  put("unk_token", "<unk>");
  put("sep_token", "");
  put("pad_token", "<pad>");
  put("cls_token", "");
  put("mask_token", "");
  if (!end) fail_missing_special(config, file, "eos_token");
  Json json = Json::object();
  json["added_tokens"] = added_tokens_json(*words, own_tokens(model), own, roles);
  Json steps = Json::array();
  if (!model.charsmap.empty()) {
    steps.push_back(
        {{"type", "Precompiled"}, {"precompiled_charsmap", encode_base64(model.charsmap)}});
  }
  steps.push_back({{"type", "Strip"}, {"strip_left", false}, {"strip_right", true}});
  steps.push_back(replace_json("Regex", " {2,}", kPieceSpace));
  json["normalizer"] = {{"type", "Sequence"}, {"normalizers", steps}};
  json["pre_tokenizer"] = spaces_json(config, true);
  json["decoder"] = spaces_json(config, true);
  json["post_processor"] = template_json({}, {*end}, json["added_tokens"]);
  return read_tokenizer_parts(json, file, std::move(words));
}

constexpr PieceClass kPieceClasses[] = {
    {.name = "LlamaTokenizer", .convert = convert_llama, .switches = true},
    {.name = "T5Tokenizer", .convert = convert_t5, .switches = false}};

}  // namespace

const PieceClass* piece_class(std::string_view name) {
  if (name.empty()) return &kPieceClasses[0];
  const auto* const row = std::ranges::find(kPieceClasses, name, &PieceClass::name);
  return row == std::end(kPieceClasses) ? nullptr : row;
}

TokenizerParts convert_sentencepiece(SentencePieceModel model, const TokenizerConfig& config,
                                     const std::string& file) {
  if (const PieceClass* const row = piece_class(config.class_name)) {
    return row->convert(model, config, file);
  }
  throw Error({.kind = ErrorKind::kModel,
               .code = "E_TOK_CLASS",
               .file = config.file,
               .where = "tokenizer_class",
               .expected = "LlamaTokenizer or T5Tokenizer, which are read from " +
                           std::filesystem::path(file).filename().string(),
               .found = in_quotes(config.class_name),
               .hint = "put the tokenizer.json of this model into the folder: "
                       "AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER) writes one"});
}

}  // namespace tessera
