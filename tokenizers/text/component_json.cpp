// See component_json.h. Which fields each type has follows the files that the reference writes,
// older versions included.
#include "tokenizers/text/component_json.h"

#include <array>
#include <optional>
#include <utility>

#include "engine/core/index.h"
#include "engine/core/utf8.h"
#include "tokenizers/text/tokenizer_json.h"

namespace tessera {

namespace {

constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

void collect(const JsonNode& node, std::string_view members,
             std::vector<std::pair<JsonNode, std::string>>& out) {
  const std::string type = node.at("type").text();
  if (type != "Sequence") {
    out.emplace_back(node, type);
  } else {
    node.only({members});
    for (const JsonNode& member : node.at(members).items(kMaxComponents))
      collect(member, members, out);
  }
  if (out.size() > kMaxComponents) {
    node.fail("E_TOK_COUNT", "at most " + std::to_string(kMaxComponents) + " components", "more");
  }
}

Pattern read_pattern(const JsonNode& node) {
  node.only({"Regex", "String"});
  const bool regex = node.has("Regex");
  if (regex == node.has("String"))
    node.fail("E_TOK_PATTERN", "either \"Regex\" or \"String\"", node.describe());
  const JsonNode value = node.at(regex ? "Regex" : "String");
  const std::string text = value.text();
  if (text.empty()) value.fail("E_TOK_PATTERN_EMPTY", "a pattern", "an empty string");
  if (regex) return Pattern(Regex::compile(text, {node.file(), value.path()}));
  if (text.size() > Regex::kMaxPatternBytes) {
    value.fail("E_TOK_REGEX_LENGTH",
               "at most " + std::to_string(Regex::kMaxPatternBytes) + " bytes",
               std::to_string(text.size()) + " bytes");
  }
  return Pattern(text);
}

// Text that is put into each match or in front: as long as a token at most.
std::string read_content(const JsonNode& node) {
  std::string text = node.text();
  if (text.size() > kMaxTokenBytes) {
    node.fail("E_TOK_TOKEN_LENGTH", "at most " + std::to_string(kMaxTokenBytes) + " bytes",
              std::to_string(text.size()) + " bytes");
  }
  return text;
}

PrependScheme read_scheme(const JsonNode& node) {
  constexpr std::array<std::string_view, 3> kNames = {"never", "first", "always"};
  const auto scheme = node.has("prepend_scheme")
                          ? static_cast<PrependScheme>(node.at("prepend_scheme").choice(kNames))
                          : PrependScheme::kAlways;
  if (!node.boolean_or("add_prefix_space", true) && scheme != PrependScheme::kNever) {
    node.fail("E_TOK_PREFIX_SPACE", "add_prefix_space and prepend_scheme to agree",
              "a contradiction");
  }
  return scheme;
}

Regex own(std::string_view pattern, const JsonNode& node) {
  return Regex::compile_native(pattern, {node.file(), node.path()});
}

constexpr std::array<std::string_view, 5> kBehaviors = {"Removed", "Isolated", "MergedWithPrevious",
                                                        "MergedWithNext", "Contiguous"};

SplitBehavior read_behavior(const JsonNode& node) {
  return static_cast<SplitBehavior>(node.at("behavior").choice(kBehaviors));
}

SplitWords read_split(const JsonNode& node) {
  node.only({"pattern", "behavior", "invert"});
  const SplitBehavior behavior = read_behavior(node);
  return {read_pattern(node.at("pattern")), behavior, node.at("invert").boolean()};
}

ByteLevelWords read_byte_level(const JsonNode& node) {
  node.only({"add_prefix_space", "trim_offsets", "use_regex"});
  ByteLevelWords out;
  out.add_prefix_space = node.at("add_prefix_space").boolean();
  node.boolean_or("trim_offsets", true);
  if (node.boolean_or("use_regex", true)) {
    out.cut.push_back({Pattern(Regex::compile(kGpt2Pattern, {node.file(), node.path()}))});
  }
  return out;
}

NormalizeCharsmap read_charsmap(const JsonNode& node) {
  const JsonNode field = node.at("precompiled_charsmap");
  const auto bytes = decode_base64(field.text());
  if (!bytes) field.fail("E_TOK_CHARSMAP", "base64", field.describe());
  Charsmap::Fault why;
  auto map = Charsmap::parse(*bytes, why);
  if (!map) field.fail("E_TOK_CHARSMAP", why.expected, why.found);
  return {std::move(*map)};
}

// Those that files of BERT and SentencePiece models have.
std::optional<NormalizeStep> read_other_normalizer(const JsonNode& node, const std::string& type) {
  if (type == "Precompiled") {
    node.only({"precompiled_charsmap"});
    return read_charsmap(node);
  }
  if (type == "BertNormalizer") {
    node.only({"clean_text", "handle_chinese_chars", "strip_accents", "lowercase"});
    const bool lowercase = node.at("lowercase").boolean();
    return NormalizeBert{node.at("clean_text").boolean(), node.at("handle_chinese_chars").boolean(),
                         node.boolean_or("strip_accents", lowercase), lowercase};
  }
  if (type != "StripAccents" && type != "Nmt" && type != "ByteLevel") return std::nullopt;
  node.only({});
  if (type == "StripAccents") return NormalizeStripAccents{};
  if (type == "Nmt") return NormalizeNmt{};
  return NormalizeByteLevel{};
}

}  // namespace

std::vector<std::pair<JsonNode, std::string>> flatten_components(const JsonNode& node,
                                                                 std::string_view members) {
  std::vector<std::pair<JsonNode, std::string>> out;
  collect(node, members, out);
  return out;
}

Normalizer read_normalizer(const JsonNode& root) {
  Normalizer out;
  for (const auto& [node, type] : flatten_components(root, "normalizers")) {
    if (type == "NFC" || type == "NFD" || type == "NFKC" || type == "NFKD") {
      node.only({});
      const bool compatible = type.size() == 4, composed = type.back() == 'C';
      out.emplace_back(NormalizeForm{compatible
                                         ? (composed ? NormalForm::kNfkc : NormalForm::kNfkd)
                                         : (composed ? NormalForm::kNfc : NormalForm::kNfd)});
    } else if (type == "Lowercase") {
      node.only({});
      out.emplace_back(NormalizeLowercase{});
    } else if (type == "Prepend") {
      node.only({"prepend"});
      out.emplace_back(NormalizePrepend{read_content(node.at("prepend"))});
    } else if (type == "Replace") {
      node.only({"pattern", "content"});
      out.emplace_back(
          NormalizeReplace{read_pattern(node.at("pattern")), read_content(node.at("content"))});
    } else if (type == "Strip") {
      node.only({"strip_left", "strip_right"});
      out.emplace_back(
          NormalizeStrip{node.at("strip_left").boolean(), node.at("strip_right").boolean()});
    } else if (auto step = read_other_normalizer(node, type)) {
      out.push_back(std::move(*step));
    } else {
      node.at("type").fail("E_TOK_NORMALIZER",
                           "NFC, NFD, NFKC, NFKD, Lowercase, Prepend, Replace, Strip, Precompiled, "
                           "BertNormalizer, StripAccents, Nmt, ByteLevel or Sequence",
                           node.at("type").describe());
    }
  }
  return out;
}

PreTokenizer read_pre_tokenizer(const JsonNode& root) {
  PreTokenizer out;
  const std::string space = "[" + class_items("space") + "]";
  const std::string word = class_items("rust-word");
  for (const auto& [node, type] : flatten_components(root, "pretokenizers")) {
    if (type == "Split") {
      out.emplace_back(read_split(node));
    } else if (type == "Digits") {
      node.only({"individual_digits"});
      const std::string number = "[" + class_items("rust-number") + "]";
      const bool single = node.at("individual_digits").boolean();
      out.emplace_back(SplitWords{Pattern(own(number + (single ? "" : "+"), node))});
    } else if (type == "ByteLevel") {
      out.emplace_back(read_byte_level(node));
    } else if (type == "Metaspace") {
      node.only({"replacement", "prepend_scheme", "add_prefix_space", "split", "str_rep"});
      MetaspaceWords step{"", read_scheme(node), node.boolean_or("split", true)};
      append_utf8(step.replacement, node.at("replacement").character());
      out.emplace_back(std::move(step));
    } else if (type == "Whitespace") {
      node.only({});
      const std::string pattern = "[" + word + "]+|[^" + word + class_items("space") + "]+";
      out.emplace_back(SplitWords{Pattern(own(pattern, node)), SplitBehavior::kRemoved, true});
    } else if (type == "WhitespaceSplit") {
      node.only({});
      out.emplace_back(SplitWords{Pattern(own(space, node)), SplitBehavior::kRemoved, false});
    } else if (type == "BertPreTokenizer") {
      node.only({});
      out.emplace_back(SplitWords{Pattern(own(space, node)), SplitBehavior::kRemoved, false});
      out.emplace_back(PunctuationWords{});
    } else if (type == "Punctuation") {
      node.only({"behavior"});
      out.emplace_back(node.has("behavior") ? PunctuationWords{read_behavior(node)}
                                            : PunctuationWords{});
    } else if (type == "CharDelimiterSplit") {
      node.only({"delimiter"});
      std::string delimiter;
      append_utf8(delimiter, node.at("delimiter").character());
      out.emplace_back(SplitWords{Pattern(delimiter), SplitBehavior::kRemoved, false});
    } else {
      node.at("type").fail(
          "E_TOK_PRETOKENIZER",
          "Split, Digits, ByteLevel, Metaspace, Whitespace, WhitespaceSplit, BertPreTokenizer, "
          "Punctuation, CharDelimiterSplit or Sequence",
          node.at("type").describe());
    }
  }
  return out;
}

Decoder read_decoder(const JsonNode& root) {
  Decoder out;
  for (const auto& [node, type] : flatten_components(root, "decoders")) {
    if (type == "ByteLevel") {
      node.only({"add_prefix_space", "trim_offsets", "use_regex"});
      out.emplace_back(DecodeByteLevel{});
    } else if (type == "ByteFallback") {
      node.only({});
      out.emplace_back(DecodeByteFallback{});
    } else if (type == "Fuse") {
      node.only({});
      out.emplace_back(DecodeFuse{});
    } else if (type == "Replace") {
      node.only({"pattern", "content"});
      out.emplace_back(
          DecodeReplace{read_pattern(node.at("pattern")), read_content(node.at("content"))});
    } else if (type == "Strip") {
      node.only({"content", "start", "stop"});
      constexpr auto kMax = to_index(kMaxTokenBytes);
      out.emplace_back(DecodeStrip{node.at("content").character(),
                                   to_size(node.at("start").integer(0, kMax)),
                                   to_size(node.at("stop").integer(0, kMax))});
    } else if (type == "Metaspace") {
      node.only({"replacement", "prepend_scheme", "add_prefix_space", "split", "str_rep"});
      out.emplace_back(DecodeMetaspace{node.at("replacement").character(), read_scheme(node)});
    } else if (type == "WordPiece") {
      node.only({"prefix", "cleanup"});
      out.emplace_back(
          DecodeWordPiece{read_content(node.at("prefix")), node.at("cleanup").boolean()});
    } else if (type == "BPEDecoder") {
      node.only({"suffix"});
      const std::string suffix = read_content(node.at("suffix"));
      if (suffix.empty())
        node.at("suffix").fail("E_TOK_PATTERN_EMPTY", "a suffix", "an empty string");
      out.emplace_back(DecodeBpe{suffix});
    } else {
      node.at("type").fail("E_TOK_DECODER",
                           "ByteLevel, ByteFallback, Fuse, Replace, Strip, Metaspace, WordPiece, "
                           "BPEDecoder or Sequence",
                           node.at("type").describe());
    }
  }
  return out;
}

}  // namespace tessera
