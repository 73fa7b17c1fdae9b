// vocab.json and merges.txt as the reference converts them. Each class reads the lines of
// merges.txt in its own way: GPT-2 and CLIP drop the first line whatever it says, GPT-2 the last
// one too.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "engine/core/index.h"
#include "engine/core/utf8.h"
#include "tokenizers/text/json_node.h"
#include "tokenizers/text/merge_builder.h"
#include "tokenizers/text/model_json.h"
#include "tokenizers/text/patterns.h"
#include "tokenizers/text/rebuilt_class.h"
#include "tokenizers/text/slow_tokenizers.h"
#include "tokenizers/text/tokenizer.h"

namespace tessera {

namespace {

constexpr std::string_view kClipPattern =
    R"('s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+)";
constexpr std::size_t kClipLines = 49152 - 256 - 2 + 1;

enum class BytePairClass { kQwen2, kGpt2, kClip };

struct MergeLine {
  std::size_t number;  // from 1
  std::string_view text;
};

std::string_view strip_blanks(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n\v\f";
  const std::size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

// The lines that hold merges.
std::vector<MergeLine> merge_lines(std::string_view text, BytePairClass kind) {
  if (kind == BytePairClass::kClip) text = strip_blanks(text);
  std::vector<MergeLine> out;
  for (std::size_t number = 1, at = 0; at <= text.size(); ++number) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    const bool last = end == text.size();
    at = end + 1;
    const bool head =
        number == 1 && (kind != BytePairClass::kQwen2 || line.starts_with("#version:"));
    if (head || (last && kind == BytePairClass::kGpt2)) continue;
    if (kind == BytePairClass::kClip && number > kClipLines) break;
    if (kind == BytePairClass::kQwen2 && strip_blanks(line).empty()) continue;
    out.push_back({number, line});
  }
  return out;
}

[[noreturn]] void fail_line(const VocabAndMerges& files, const MergeLine& line, const char* code,
                            std::string expected, std::string found) {
  throw Error({.kind = ErrorKind::kModel,
               .code = code,
               .file = files.merges_file,
               .where = "line " + std::to_string(line.number),
               .expected = std::move(expected),
               .found = std::move(found)});
}

MergeTable read_merge_lines(const VocabAndMerges& files, BytePairClass kind,
                            const std::vector<std::string>& tokens) {
  const std::vector<MergeLine> lines = merge_lines(files.merges, kind);
  if (lines.size() > kMaxTokens) {
    fail_line(files, lines.back(), "E_TOK_COUNT",
              "at most " + std::to_string(kMaxTokens) + " merges", std::to_string(lines.size()));
  }
  MergeBuilder merges(tokens, lines.size());
  std::unordered_set<std::string_view> seen;  // of equal lines the first counts
  for (const MergeLine& line : lines) {
    const std::string_view both = strip_blanks(line.text);
    const std::size_t blank = std::min(both.find_first_of(" \t"), both.size());
    const std::string_view left = both.substr(0, blank), right = strip_blanks(both.substr(blank));
    const bool two =
        !left.empty() && !right.empty() && right.find_first_of(" \t") == std::string_view::npos;
    if (!two || !is_valid_utf8(both))
      fail_line(files, line, "E_TOK_MERGE_FORM", "two tokens with a space between",
                in_quotes(both));
    if (!seen.insert(both).second) continue;
    if (const auto fault = merges.add(left, right))
      fail_line(files, line, fault->code, fault->expected, fault->found);
  }
  return merges.take();
}

Json split_json(std::string_view pattern, const char* behavior, bool invert) {
  return {{"type", "Split"},
          {"pattern", {{"Regex", pattern}}},
          {"behavior", behavior},
          {"invert", invert}};
}

Json byte_level_json(bool prefix, bool use_regex) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", prefix},
          {"trim_offsets", true},
          {"use_regex", use_regex}};
}

// Normaliser, pre-tokeniser and decoder of the class.
Json components_json(BytePairClass kind, bool prefix) {
  Json json = Json::object();
  json["decoder"] = byte_level_json(true, true);
  if (kind == BytePairClass::kGpt2) {
    json["pre_tokenizer"] = byte_level_json(prefix, true);
    return json;
  }
  Json cut, letters;
  if (kind == BytePairClass::kQwen2) {
    json["normalizer"] = {{"type", "NFC"}};
    cut = split_json(kQwen2Pattern, "Isolated", false);
    letters = byte_level_json(prefix, false);
  } else {
    const Json spaces = {{"type", "Replace"}, {"pattern", {{"Regex", "\\s+"}}}, {"content", " "}};
    json["normalizer"] = {
        {"type", "Sequence"},
        {"normalizers", Json::array({{{"type", "NFC"}}, spaces, {{"type", "Lowercase"}}})}};
    cut = split_json(kClipPattern, "Removed", true);
    letters = byte_level_json(false, true);
  }
  json["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", Json::array({cut, letters})}};
  return json;
}

// The special tokens of the class, in the reference's order.
std::vector<AddedToken> roles_of(BytePairClass kind, const TokenizerConfig& config) {
  struct Role {
    const char* name;
    const char* fallback[3];  // by class
  };
  constexpr const char* kEnd = "<|endoftext|>";
  constexpr Role kAll[] = {{"bos_token", {"", kEnd, "<|startoftext|>"}},
                           {"eos_token", {kEnd, kEnd, kEnd}},
                           {"unk_token", {kEnd, kEnd, kEnd}},
                           {"sep_token", {"", "", ""}},
                           {"pad_token", {kEnd, "", kEnd}},
                           {"cls_token", {"", "", ""}},
                           {"mask_token", {"", "", ""}}};
  std::vector<AddedToken> out;
  for (const Role& role : kAll) {
    // GPT-2's and CLIP's own are looked for in normalised text.
    const std::string_view name = role.name;
    const bool own = name == "bos_token" || name == "eos_token" || name == "unk_token" ||
                     (name == "pad_token" && kind == BytePairClass::kGpt2);
    const bool normalized = kind != BytePairClass::kQwen2 && own;
    const auto token = special_token(config, name, nth(role.fallback, kind), normalized);
    if (token) out.push_back(*token);
  }
  return out;
}

std::optional<BytePairClass> class_named(std::string_view name) {
  if (name == "Qwen2Tokenizer") return BytePairClass::kQwen2;
  if (name == "GPT2Tokenizer") return BytePairClass::kGpt2;
  if (name == "CLIPTokenizer") return BytePairClass::kClip;
  return std::nullopt;
}

BytePairClass class_of(const VocabAndMerges& files, const TokenizerConfig& config) {
  if (const auto kind = class_named(config.class_name)) return *kind;
  const bool none = config.class_name.empty();
  throw Error(
      {.kind = ErrorKind::kModel,
       .code = "E_TOK_CLASS",
       .file = config.file.empty() ? files.vocab_file : config.file,
       .where = "tokenizer_class",
       .expected = "Qwen2Tokenizer, GPT2Tokenizer or CLIPTokenizer, which are read from "
                   "vocab.json and merges.txt",
       .found = none ? "none" : in_quotes(config.class_name),
       .hint = none ? "copy the model's tokenizer_config.json or tokenizer.json into the folder"
                    : "copy the model's tokenizer.json into the folder"});
}

std::int64_t id_in(const Json& added, const std::string& content) {
  for (const Json& entry : added) {
    if (entry["content"] == content) return entry["id"].get<std::int64_t>();
  }
  return -1;
}

}  // namespace

Json byte_pair_components(std::string_view class_name, bool add_prefix_space) {
  return components_json(class_named(class_name).value(), add_prefix_space);
}

TokenizerParts convert_vocab_and_merges(const VocabAndMerges& files,
                                        const TokenizerConfig& config) {
  const BytePairClass kind = class_of(files, config);
  const JsonLimits limits{TextTokenizer::kMaxFileBytes, 8, ErrorKind::kModel};
  const Json vocab = parse_json(files.vocab, files.vocab_file, limits);
  const std::vector<AddedToken> roles = roles_of(kind, config);
  const std::size_t outside = config.listed.size() + roles.size() + config.additional.size();
  std::vector<std::string> tokens = read_vocab(JsonNode(vocab, files.vocab_file, "$"), outside);
  MergeTable merges = read_merge_lines(files, kind, tokens);
  BpeOptions options;
  if (kind == BytePairClass::kClip) {
    options.suffix = "</w>";
    const auto unknown = special_token(config, "unk_token", "<|endoftext|>", true);
    const auto found =
        unknown ? std::find(tokens.begin(), tokens.end(), unknown->content) : tokens.end();
    if (found != tokens.end()) options.unknown = narrow<std::int32_t>(found - tokens.begin());
  }
  auto words = std::make_unique<BpeModel>(std::move(tokens), std::move(merges), std::move(options));
  Json json = components_json(kind, config.add_prefix_space.value.value_or(false));
  json["added_tokens"] = added_tokens_json(*words, {}, config, roles);
  const auto begin = special_token(config, "bos_token",
                                   kind == BytePairClass::kClip   ? "<|startoftext|>"
                                   : kind == BytePairClass::kGpt2 ? "<|endoftext|>"
                                                                  : "",
                                   true);
  const auto end = special_token(config, "eos_token", "<|endoftext|>", true);
  const auto pair = [&](const AddedToken& token) {
    return Json::array({token.content, id_in(json["added_tokens"], token.content)});
  };
  const bool wants_begin =
      kind == BytePairClass::kGpt2 && config.add_bos_token.value.value_or(false);
  if ((kind == BytePairClass::kClip && (!begin || !end)) || (wants_begin && !begin)) {
    throw Error({.kind = ErrorKind::kModel,
                 .code = "E_TOK_SPECIAL",
                 .file = config.file,
                 .where = begin ? "eos_token" : "bos_token",
                 .expected = "a token, as texts get it",
                 .found = "null"});
  }
  if (kind == BytePairClass::kClip) {
    json["post_processor"] = {
        {"type", "RobertaProcessing"}, {"sep", pair(*end)}, {"cls", pair(*begin)}};
  } else if (wants_begin) {
    const Json token = {{"SpecialToken", {{"id", begin->content}, {"type_id", 0}}}};
    const Json text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
    Json specials = Json::object();
    specials[begin->content] = {{"id", begin->content}, {"ids", Json::array({pair(*begin)[1]})}};
    json["post_processor"] = {{"type", "TemplateProcessing"},
                              {"single", Json::array({token, text})},
                              {"pair", Json::array()},
                              {"special_tokens", specials}};
  }
  return read_tokenizer_parts(json, files.vocab_file, std::move(words));
}

}  // namespace tessera
