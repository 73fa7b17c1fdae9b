#include "apps/runtime/gguf_tokenizer.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "engine/checkpoint/gguf_weights.h"
#include "engine/core/index.h"
#include "engine/core/io.h"
#include "engine/families/gguf_keys.h"

namespace tessera {

namespace {

constexpr std::string_view kPrompts = "of prompts that fill gaps or of other tasks";
// Keys of tokenizer.* that change nothing here.
constexpr std::array kIdleOfTokenizer = {
    IdleGgufKey{"ggml.seperator_token_id", kPrompts},
    IdleGgufKey{"ggml.separator_token_id", kPrompts},
    IdleGgufKey{"ggml.cls_token_id", kPrompts},
    IdleGgufKey{"ggml.mask_token_id", kPrompts},
    IdleGgufKey{"ggml.token_type_count", kPrompts},
    IdleGgufKey{"ggml.fim_pre_token_id", kPrompts},
    IdleGgufKey{"ggml.fim_suf_token_id", kPrompts},
    IdleGgufKey{"ggml.fim_mid_token_id", kPrompts},
    IdleGgufKey{"ggml.fim_pad_token_id", kPrompts},
    IdleGgufKey{"ggml.fim_rep_token_id", kPrompts},
    IdleGgufKey{"ggml.fim_sep_token_id", kPrompts},
    IdleGgufKey{"ggml.prefix_token_id", kPrompts},
    IdleGgufKey{"ggml.suffix_token_id", kPrompts},
    IdleGgufKey{"ggml.middle_token_id", kPrompts},
    IdleGgufKey{"huggingface.json", "the lists of tokens and merges say the same"},
    IdleGgufKey{"chat_template.*", "templates with names are for tools"},
    IdleGgufKey{"chat_templates", "templates with names are for tools"}};
// Tokens that end an answer in the models that have them, next to the one that the file names.
constexpr std::array kAnswerEnds = {
    std::string_view("<|im_end|>"),    std::string_view("<|eot_id|>"),
    std::string_view("<|eom_id|>"),    std::string_view("<|end_of_text|>"),
    std::string_view("<|endoftext|>"), std::string_view("<end_of_turn>")};

constexpr const char* kOwnPrefix = "tessera";
// One of ours below it.
constexpr std::string_view own_key(std::string_view whole) {
  return whole.substr(std::string_view(kOwnPrefix).size() + 1);
}

std::optional<std::int32_t> id_of(GgufKeyReader& keys, std::string_view key) {
  const GgufValue* value = keys.find(key);
  if (value == nullptr) return std::nullopt;
  const auto number = value->integer();
  if (number && *number == std::int64_t{0xffffffff}) return std::nullopt;  // none
  if (!number || *number < 0 || *number >= std::int64_t{1} << 22) {
    keys.fail(key, "the id of a token",
              number ? std::to_string(*number) : std::string(gguf_kind_name(value->kind())));
  }
  return narrow<std::int32_t>(*number);
}

void read_lists(GgufKeyReader& keys, ListedTokenizer& out) {
  keys.list("ggml.tokens", "a list of texts", kMaxTokens, true, [&](const GgufValue& value) {
    if (value.text()) out.tokens.emplace_back(*value.text());
    return value.text().has_value();
  });
  keys.list("ggml.merges", "a list of texts", kMaxTokens, out.model == "gpt2",
            [&](const GgufValue& value) {
              if (value.text()) out.merges.emplace_back(*value.text());
              return value.text().has_value();
            });
  keys.list("ggml.scores", "a list of numbers", kMaxTokens, out.model == "llama",
            [&](const GgufValue& value) {
              if (value.number()) out.scores.push_back(to_float(*value.number()));
              return value.number().has_value();
            });
  keys.list("ggml.token_type", "a list of kinds from 1 to 6", kMaxTokens, false,
            [&](const GgufValue& value) {
              const auto kind = value.integer();
              const bool right = kind && *kind >= 1 && *kind <= 6;
              if (right) out.kinds.push_back(static_cast<ListedKind>(*kind));
              return right;
            });
}

ListedTokenizer read_listed(GgufKeyReader& keys, GgufKeyReader& own) {
  ListedTokenizer out;
  out.file = keys.file();
  out.model = keys.text("ggml.model").value_or("");
  out.cut = keys.text("ggml.pre").value_or("");
  read_lists(keys, out);
  out.begin = id_of(keys, "ggml.bos_token_id");
  out.end = id_of(keys, "ggml.eos_token_id");
  out.unknown = id_of(keys, "ggml.unknown_token_id");
  out.pad = id_of(keys, "ggml.padding_token_id");
  if (out.model == "llama") {  // as SentencePiece's own defaults are
    out.begin = out.begin.value_or(1);
    out.end = out.end.value_or(2);
    out.unknown = out.unknown.value_or(0);
  }
  out.add_begin = keys.boolean("ggml.add_bos_token");
  out.add_end = keys.boolean("ggml.add_eos_token");
  out.space_prefix = keys.boolean("ggml.add_space_prefix");
  out.legacy = own.boolean(own_key(kGgufLegacy));
  for (const char* key :
       {"ggml.add_sep_token", "ggml.remove_extra_whitespaces", "ggml.escape_whitespaces"}) {
    const bool off = key == std::string_view("ggml.escape_whitespaces");
    const std::optional<bool> found = keys.boolean(key);
    if (found && *found != off) keys.fail(key, off ? "true" : "false", off ? "false" : "true");
  }
  if (keys.find("ggml.precompiled_charsmap") != nullptr) {
    keys.fail("ggml.precompiled_charsmap", "no such key in a model of llama or gpt2", "one");
  }
  return out;
}

std::vector<std::int32_t> read_ends(GgufKeyReader& keys, GgufKeyReader& own,
                                    std::optional<std::int32_t> end,
                                    const TextTokenizer& tokenizer) {
  std::vector<std::int32_t> out;
  const auto add = [&](std::optional<std::int32_t> id) {
    if (id && std::find(out.begin(), out.end(), *id) == out.end()) out.push_back(*id);
  };
  add(end);
  for (const char* key : {"ggml.eot_token_id", "ggml.eom_token_id"}) {
    const auto id = id_of(keys, key);
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
  if (own.has(own_key(kGgufStops))) out.clear();
  own.list(own_key(kGgufStops), "ids of tokens", kMaxTokens, false, [&](const GgufValue& value) {
    const auto id = value.integer();
    const bool right = id && *id >= 0 && *id < std::int64_t{1} << 30;
    if (right) add(narrow<std::int32_t>(*id));
    return right;
  });
  if (out.empty()) keys.fail("ggml.eos_token_id", "the id of a token", "no such key");
  return out;
}

std::shared_ptr<const Json> read_generation_key(GgufKeyReader& own) {
  const std::string_view key = own_key(kGgufGeneration);
  const std::optional<std::string> text = own.text(key);
  if (!text) return nullptr;
  Json out = parse_json(*text, own.file() + ", key \"" + std::string(kGgufGeneration) + "\"");
  if (!out.is_object()) own.fail(key, "an object", std::string(out.type_name()));
  return std::make_shared<const Json>(std::move(out));
}

}  // namespace

GgufTexts read_gguf_texts(const GgufFile& gguf, const std::string& file, FolderAccount& account) {
  GgufKeyReader keys(gguf, "tokenizer", file, "E_TOK_KEY");
  GgufKeyReader own(gguf, kOwnPrefix, file, "E_TOK_KEY");
  ListedTokenizer listed = read_listed(keys, own);
  const auto begin = listed.begin, end = listed.end;
  GgufTexts out{.tokenizer = TextTokenizer::from_parts(convert_listed(std::move(listed))),
                .stops = {},
                .generation = read_generation_key(own),
                .chat_template = keys.text("chat_template"),
                .special_tokens = {}};
  out.stops = read_ends(keys, own, end, out.tokenizer);
  keys.check_all(kIdleOfTokenizer);
  own.check_all({});
  keys.account(kIdleOfTokenizer, account);
  own.account({}, account);
  const std::string architecture = gguf_architecture(gguf, file);
  account_other_keys(gguf, std::array<std::string_view, 3>{architecture, "tokenizer", kOwnPrefix},
                     file, account);
  if (begin) out.special_tokens.emplace_back("bos_token", out.tokenizer.token(*begin));
  if (end) out.special_tokens.emplace_back("eos_token", out.tokenizer.token(*end));
  return out;
}

GgufTexts read_gguf_texts(const std::filesystem::path& file) {
  const std::filesystem::path head = gguf_parts(file).front();
  const MappedFile mapped(head);
  const GgufFile gguf = parse_gguf(mapped.bytes(), head.string());
  FolderAccount unused;
  return read_gguf_texts(gguf, head.string(), unused);
}

std::optional<FolderTemplate> take_template(GgufTexts& texts, const std::filesystem::path& file) {
  if (!texts.chat_template) return std::nullopt;
  return read_template_text(std::move(*texts.chat_template), file.string(),
                            std::move(texts.special_tokens));
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
