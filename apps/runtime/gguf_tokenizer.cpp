#include "apps/runtime/gguf_tokenizer.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "engine/core/index.h"

namespace tessera {

namespace {

// Keys of tokenizer.* that change nothing here.
constexpr std::array kWithoutEffect = {std::string_view("tokenizer.ggml.seperator_token_id"),
                                       std::string_view("tokenizer.ggml.separator_token_id"),
                                       std::string_view("tokenizer.ggml.cls_token_id"),
                                       std::string_view("tokenizer.ggml.mask_token_id"),
                                       std::string_view("tokenizer.ggml.token_type_count"),
                                       std::string_view("tokenizer.ggml.fim_pre_token_id"),
                                       std::string_view("tokenizer.ggml.fim_suf_token_id"),
                                       std::string_view("tokenizer.ggml.fim_mid_token_id"),
                                       std::string_view("tokenizer.ggml.fim_pad_token_id"),
                                       std::string_view("tokenizer.ggml.fim_rep_token_id"),
                                       std::string_view("tokenizer.ggml.fim_sep_token_id"),
                                       std::string_view("tokenizer.ggml.prefix_token_id"),
                                       std::string_view("tokenizer.ggml.suffix_token_id"),
                                       std::string_view("tokenizer.ggml.middle_token_id"),
                                       std::string_view("tokenizer.huggingface.json")};
// Tokens that end an answer in the models that have them, next to the one that the file names.
constexpr std::array kAnswerEnds = {
    std::string_view("<|im_end|>"),    std::string_view("<|eot_id|>"),
    std::string_view("<|eom_id|>"),    std::string_view("<|end_of_text|>"),
    std::string_view("<|endoftext|>"), std::string_view("<end_of_turn>")};

class TextKeys {
 public:
  TextKeys(const GgufFile& gguf, std::string file) : gguf_(gguf), file_(std::move(file)) {}

  [[noreturn]] void fail(const std::string& key, std::string expected, std::string found) const {
    throw Error({.kind = ErrorKind::kModel,
                 .code = "E_TOK_KEY",
                 .file = file_,
                 .where = "key \"" + key + "\"",
                 .expected = std::move(expected),
                 .found = std::move(found)});
  }
  const GgufValue* find(const std::string& key) {
    read_.push_back(key);
    return gguf_.find(key);
  }
  std::optional<std::string> text(const std::string& key) {
    const GgufValue* value = find(key);
    if (value == nullptr) return std::nullopt;
    if (!value->text()) fail(key, "a text", std::string(gguf_kind_name(value->kind())));
    return std::string(*value->text());
  }
  std::optional<bool> boolean(const std::string& key) {
    const GgufValue* value = find(key);
    if (value == nullptr) return std::nullopt;
    if (!value->boolean()) fail(key, "true or false", std::string(gguf_kind_name(value->kind())));
    return value->boolean();
  }
  std::optional<std::int32_t> id(const std::string& key) {
    const GgufValue* value = find(key);
    if (value == nullptr) return std::nullopt;
    const auto number = value->integer();
    if (number && *number == std::int64_t{0xffffffff}) return std::nullopt;  // none
    if (!number || *number < 0 || *number >= std::int64_t{1} << 22) {
      fail(key, "the id of a token",
           number ? std::to_string(*number) : std::string(gguf_kind_name(value->kind())));
    }
    return narrow<std::int32_t>(*number);
  }
  // Calls take() with each element; it says whether the element is of the right kind.
  template <typename Take>
  void list(const std::string& key, const char* expected, bool wanted, const Take& take) {
    const GgufValue* value = find(key);
    if (value == nullptr) {
      if (wanted) fail(key, expected, "no such key");
      return;
    }
    std::optional<GgufArray> array = value->array();
    if (!array) fail(key, expected, std::string(gguf_kind_name(value->kind())));
    if (array->left() > kMaxTokens) {
      fail(key, "at most " + std::to_string(kMaxTokens) + " elements",
           std::to_string(array->left()));
    }
    while (array->left() > 0) {
      const GgufValue element = array->next();
      if (!take(element)) {
        fail(key, expected,
             "another kind or value: " + std::string(gguf_kind_name(element.kind())));
      }
    }
  }
  void check_all() const {
    for (const auto& [key, value] : gguf_.keys) {
      if (!key.starts_with("tokenizer.") || key.starts_with("tokenizer.chat_template")) continue;
      const bool known =
          std::find(read_.begin(), read_.end(), key) != read_.end() ||
          std::find(kWithoutEffect.begin(), kWithoutEffect.end(), key) != kWithoutEffect.end();
      if (!known) fail(key, "keys that are known to change nothing or are followed", "this key");
    }
  }
  const std::string& file() const { return file_; }

 private:
  const GgufFile& gguf_;
  std::string file_;
  std::vector<std::string> read_;
};

void read_lists(TextKeys& keys, ListedTokenizer& out) {
  keys.list("tokenizer.ggml.tokens", "a list of texts", true, [&](const GgufValue& value) {
    if (value.text()) out.tokens.emplace_back(*value.text());
    return value.text().has_value();
  });
  keys.list("tokenizer.ggml.merges", "a list of texts", out.model == "gpt2",
            [&](const GgufValue& value) {
              if (value.text()) out.merges.emplace_back(*value.text());
              return value.text().has_value();
            });
  keys.list("tokenizer.ggml.scores", "a list of numbers", out.model == "llama",
            [&](const GgufValue& value) {
              if (value.number()) out.scores.push_back(to_float(*value.number()));
              return value.number().has_value();
            });
  keys.list("tokenizer.ggml.token_type", "a list of kinds from 1 to 6", false,
            [&](const GgufValue& value) {
              const auto kind = value.integer();
              const bool right = kind && *kind >= 1 && *kind <= 6;
              if (right) out.kinds.push_back(static_cast<ListedKind>(*kind));
              return right;
            });
}

ListedTokenizer read_listed(TextKeys& keys) {
  ListedTokenizer out;
  out.file = keys.file();
  out.model = keys.text("tokenizer.ggml.model").value_or("");
  out.cut = keys.text("tokenizer.ggml.pre").value_or("");
  read_lists(keys, out);
  out.begin = keys.id("tokenizer.ggml.bos_token_id");
  out.end = keys.id("tokenizer.ggml.eos_token_id");
  out.unknown = keys.id("tokenizer.ggml.unknown_token_id");
  out.pad = keys.id("tokenizer.ggml.padding_token_id");
  if (out.model == "llama") {  // as SentencePiece's own defaults are
    out.begin = out.begin.value_or(1);
    out.end = out.end.value_or(2);
    out.unknown = out.unknown.value_or(0);
  }
  out.add_begin = keys.boolean("tokenizer.ggml.add_bos_token");
  out.add_end = keys.boolean("tokenizer.ggml.add_eos_token");
  out.space_prefix = keys.boolean("tokenizer.ggml.add_space_prefix");
  out.legacy = keys.boolean(std::string(kGgufLegacy));
  for (const char* key : {"tokenizer.ggml.add_sep_token", "tokenizer.ggml.remove_extra_whitespaces",
                          "tokenizer.ggml.escape_whitespaces"}) {
    const bool off = key == std::string_view("tokenizer.ggml.escape_whitespaces");
    const std::optional<bool> found = keys.boolean(key);
    if (found && *found != off) keys.fail(key, off ? "true" : "false", off ? "false" : "true");
  }
  if (keys.find("tokenizer.ggml.precompiled_charsmap") != nullptr) {
    keys.fail("tokenizer.ggml.precompiled_charsmap", "no such key in a model of llama or gpt2",
              "one");
  }
  return out;
}

std::vector<std::int32_t> read_ends(TextKeys& keys, std::optional<std::int32_t> end,
                                    const TextTokenizer& tokenizer) {
  std::vector<std::int32_t> out;
  const auto add = [&](std::optional<std::int32_t> id) {
    if (id && std::find(out.begin(), out.end(), *id) == out.end()) out.push_back(*id);
  };
  add(end);
  for (const char* key : {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
    const auto id = keys.id(key);
    if (id && *id >= tokenizer.vocab_size()) {
      keys.fail(key, "the id of one of " + std::to_string(tokenizer.vocab_size()) + " tokens",
                std::to_string(*id));
    }
    add(id);
  }
  for (const std::string_view token : kAnswerEnds) {
    const auto id = tokenizer.id_of(token);
    if (id && tokenizer.is_special(*id)) add(id);
  }
  const std::string all(kGgufStops);
  if (keys.find(all) != nullptr) out.clear();
  keys.list(all, "ids of tokens", false, [&](const GgufValue& value) {
    const auto id = value.integer();
    const bool right = id && *id >= 0 && *id < std::int64_t{1} << 30;
    if (right) add(narrow<std::int32_t>(*id));
    return right;
  });
  if (out.empty()) keys.fail("tokenizer.ggml.eos_token_id", "the id of a token", "no such key");
  return out;
}

std::optional<Json> read_generation_key(TextKeys& keys) {
  const std::string key(kGgufGeneration);
  const std::optional<std::string> text = keys.text(key);
  if (!text) return std::nullopt;
  Json out = parse_json(*text, keys.file() + ", key \"" + key + "\"");
  if (!out.is_object()) keys.fail(key, "an object", std::string(out.type_name()));
  return out;
}

}  // namespace

GgufTexts read_gguf_texts(const GgufFile& gguf, const std::string& file) {
  TextKeys keys(gguf, file);
  ListedTokenizer listed = read_listed(keys);
  const auto begin = listed.begin, end = listed.end;
  GgufTexts out{.tokenizer = TextTokenizer::from_parts(convert_listed(std::move(listed))),
                .stops = {},
                .generation = read_generation_key(keys),
                .chat_template = keys.text("tokenizer.chat_template"),
                .special_tokens = {}};
  out.stops = read_ends(keys, end, out.tokenizer);
  keys.check_all();
  if (begin) out.special_tokens.emplace_back("bos_token", out.tokenizer.token(*begin));
  if (end) out.special_tokens.emplace_back("eos_token", out.tokenizer.token(*end));
  return out;
}

void write_gguf_texts(const ListedTokenizer& listed, std::span<const std::int32_t> stops,
                      GgufKeys& keys) {
  keys.text("tokenizer.ggml.model", listed.model);
  keys.text("tokenizer.ggml.pre", listed.cut);
  keys.texts("tokenizer.ggml.tokens", listed.tokens);
  if (!listed.scores.empty()) keys.f32s("tokenizer.ggml.scores", listed.scores);
  std::vector<std::int32_t> kinds;
  for (const ListedKind kind : listed.kinds) kinds.push_back(static_cast<std::int32_t>(kind));
  keys.i32s("tokenizer.ggml.token_type", kinds);
  if (!listed.merges.empty()) keys.texts("tokenizer.ggml.merges", listed.merges);
  const auto put = [&](const char* key, std::optional<std::int32_t> id) {
    if (id) keys.u32(key, narrow<std::uint32_t>(*id));
  };
  put("tokenizer.ggml.bos_token_id", listed.begin);
  put("tokenizer.ggml.eos_token_id", listed.end);
  put("tokenizer.ggml.unknown_token_id", listed.unknown);
  put("tokenizer.ggml.padding_token_id", listed.pad);
  // Further ends, for readers that know two more.
  std::vector<std::int32_t> more;
  for (const std::int32_t id : stops) {
    if (listed.end != id) more.push_back(id);
  }
  if (!more.empty()) put("tokenizer.ggml.eot_token_id", more[0]);
  if (more.size() > 1) put("tokenizer.ggml.eom_token_id", more[1]);
  keys.i32s(kGgufStops, stops);
  const auto say = [&](std::string_view key, std::optional<bool> value) {
    if (value) keys.boolean(key, *value);
  };
  say("tokenizer.ggml.add_bos_token", listed.add_begin);
  say("tokenizer.ggml.add_eos_token", listed.add_end);
  say("tokenizer.ggml.add_space_prefix", listed.space_prefix);
  if (listed.legacy == false) keys.boolean(kGgufLegacy, false);
}

}  // namespace tessera
