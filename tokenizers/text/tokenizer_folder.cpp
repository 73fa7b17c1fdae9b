// See tokenizer_folder.h.
#include "tokenizers/text/tokenizer_folder.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "engine/core/io.h"
#include "engine/core/lfs_pointer.h"
#include "tokenizers/text/json_node.h"
#include "tokenizers/text/rebuilt_class.h"
#include "tokenizers/text/slow_tokenizers.h"
#include "tokenizers/text/tokenizer.h"

namespace tessera {

namespace {

using Path = std::filesystem::path;

std::string read_whole(const Path& path) {
  std::string text = read_file(path, TextTokenizer::kMaxFileBytes);
  if (is_lfs_pointer(text)) {
    throw Error({.kind = ErrorKind::kModel,
                 .code = "E_TOK_POINTER",
                 .file = path.string(),
                 .expected = "the file itself",
                 .found = "a git-lfs pointer to it",
                 .hint = "fetch it: git lfs pull"});
  }
  return text;
}

// Llama 3's own tokenizer.model is a list of base64 words with ranks.
void refuse_word_list(const Path& path, const std::string& text) {
  const std::size_t line = std::min(text.find('\n'), text.size());
  const std::size_t space = text.find(' ');
  if (space >= line || line > 4096) return;
  const auto is_base64 = [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '+' ||
           c == '/' || c == '=';
  };
  for (std::size_t i = 0; i < line; ++i) {
    const bool digit = text[i] >= '0' && text[i] <= '9';
    if (i == space || (i < space ? is_base64(text[i]) : digit)) continue;
    return;
  }
  throw Error({.kind = ErrorKind::kModel,
               .code = "E_TOKENIZER_TIKTOKEN",
               .file = path.string(),
               .expected = "SentencePiece's model file",
               .found = "a tiktoken word list, which is not read",
               .hint = "copy the tokenizer.json of the Hugging Face port into this folder"});
}

// Nothing where the switch is not set, or says what the template does.
void note_switch(const ConfigSwitch& set, const char* key, bool done, TokenizerParts& parts) {
  if (!set.value || *set.value == done) return;
  parts.notes.push_back({"tokenizer_config.json", key, false,
                         "tokenizer.json's post_processor says otherwise, as in transformers 5"});
}

// A SentencePiece model is what transformers 4 makes of it. What release 5 makes otherwise is
// named; `by_type`: no file names its class.
void note_releases(const TokenizerConfig& config, bool by_type, TokenizerParts& parts) {
  const auto note = [&](const char* key, std::string_view why) {
    parts.notes.push_back({"tokenizer_config.json", key, false, why});
  };
  if (!piece_class(config.class_name)->switches) {
    if (!config.listed.empty()) {
      note("added_tokens_decoder",
           "cut out of texts as in transformers 4; 5 cuts after them otherwise");
    }
    return;
  }
  if (!config.add_bos_token.present) {
    note("add_bos_token (absent)", "true as in transformers 4; false in 5");
  }
  if (!config.legacy.value) note("legacy (absent)", "true as in transformers 4; false in 5");
  if (config.add_prefix_space.present && by_type) {
    note("add_prefix_space", "followed as in transformers 4; 5 goes by the model file");
  }
}

// Tokens without flags, special, whatever the file says. True if any changed.
bool add_again(std::span<const std::string_view> again, Json& json) {
  bool changed = false;
  for (Json& token : json["added_tokens"]) {
    if (std::ranges::find(again, token["content"].get_ref<const std::string&>()) == again.end()) {
      continue;
    }
    for (const char* flag : {"single_word", "lstrip", "rstrip", "normalized", "special"}) {
      const bool value = std::string_view(flag) == "special";
      changed = changed || token[flag] != Json(value);
      token[flag] = value;
    }
  }
  return changed;
}

// tokenizer_config.json adds tokens to those of tokenizer.json and changes how they are looked for.
TokenizerParts read_json_with_config(const Path& path, const Path& folder,
                                     std::span<const std::string_view> again) {
  const std::string file = path.string(), text = read_whole(path);
  Json json = parse_tokenizer_json(text, file);
  const TokenizerConfig config = read_tokenizer_config(folder);
  const std::vector<TokenizerNote> notes =
      follow_class(read_model_names(folder), config, text, json);
  TokenizerParts parts = read_tokenizer_parts(json, file, nullptr);
  std::optional<Json> added = added_by_config(parts, config);
  if (added) json["added_tokens"] = std::move(*added);
  if (add_again(again, json) || added) parts = read_tokenizer_parts(json, file, nullptr);
  bool before = false, after = false;
  for (const IdTemplate& around : parts.templates) {
    before = before || !around.before.empty();
    after = after || !around.after.empty();
  }
  parts.notes.insert(parts.notes.end(), notes.begin(), notes.end());
  note_switch(config.add_bos_token, "add_bos_token", before, parts);
  note_switch(config.add_eos_token, "add_eos_token", after, parts);
  if (config.clean_up_spaces && json["model"].value("type", "BPE") != "BPE") {
    parts.notes.push_back({"tokenizer_config.json", "clean_up_tokenization_spaces", false,
                           "texts keep their spaces"});
  }
  return parts;
}

// The class of SentencePiece's file where the tokenizer's own files name none: what config.json
// names, else the one of its model_type, as AutoTokenizer of transformers 5 chooses. Types that are
// not listed have classes that are not read here, or none that is known.
void settle_class(const Path& folder, TokenizerConfig& config) {
  struct TypeClass {
    std::string_view begin;  // of model_type
    const char* name;
  };
  constexpr TypeClass kTypes[] = {{"t5", "T5Tokenizer"},
                                  {"mt5", "T5Tokenizer"},
                                  {"umt5", "T5Tokenizer"},
                                  {"llama", "LlamaTokenizer"},
                                  {"mistral", "LlamaTokenizer"},
                                  {"mixtral", "LlamaTokenizer"},
                                  {"llava", "LlamaTokenizer"},
                                  {"janus", "LlamaTokenizer"},
                                  {"multi_modality", "LlamaTokenizer"},
                                  {"idefics", "LlamaTokenizer"},
                                  {"chameleon", "LlamaTokenizer"}};
  if (!config.class_name.empty()) return;
  const ModelConfigNames names = read_model_names(folder);
  if (names.file.empty()) return;
  config.file = names.file;
  if (config.name_class(names.tokenizer_class)) return;
  const std::string& type = names.type;
  if (type.empty()) return;
  const auto row = std::ranges::find_if(
      kTypes, [&](const TypeClass& one) { return type.starts_with(one.begin); });
  if (row == std::end(kTypes)) {
    throw Error({.kind = ErrorKind::kModel,
                 .code = "E_TOK_CLASS",
                 .file = names.file,
                 .where = "model_type",
                 .expected =
                     "a type whose tokenizer is known, or a tokenizer_config.json that names its "
                     "tokenizer_class",
                 .found = type,
                 .hint = "copy the model's tokenizer.json into the folder"});
  }
  config.class_name = row->name;
}

constexpr const char* kMissing = "E_TOK_MISSING_FILE";

[[noreturn]] void fail_missing(const Path& folder, const char* code, std::string found,
                               std::string hint) {
  throw Error({.kind = ErrorKind::kModel,
               .code = code,
               .file = (folder / "tokenizer.json").string(),
               .expected = "this file, or tokenizer.model, or vocab.json with merges.txt",
               .found = std::move(found),
               .hint = std::move(hint)});
}

}  // namespace

TokenizerParts read_tokenizer_folder(const Path& folder, std::span<const std::string_view> again) {
  const Path json = folder / "tokenizer.json";
  if (file_exists(json)) return read_json_with_config(json, folder, again);
  constexpr std::array<const char*, 2> kModels = {"tokenizer.model", "spiece.model"};
  for (const char* name : kModels) {
    const Path path = folder / name;
    if (!file_exists(path)) continue;
    const std::string bytes = read_whole(path);
    refuse_word_list(path, bytes);
    TokenizerConfig config = read_tokenizer_config(folder);
    const bool by_type = config.class_name.empty();
    settle_class(folder, config);
    TokenizerParts parts =
        convert_sentencepiece(read_sentencepiece(bytes, path.string()), config, path.string());
    note_releases(config, by_type, parts);
    return parts;
  }
  const Path vocab = folder / "vocab.json", merges = folder / "merges.txt";
  const bool has_vocab = file_exists(vocab), has_merges = file_exists(merges);
  if (has_vocab && has_merges) {
    TokenizerConfig config = read_tokenizer_config(folder);
    follow_type(read_model_names(folder), config);
    return convert_vocab_and_merges(
        {read_whole(vocab), read_whole(merges), vocab.string(), merges.string()}, config);
  }
  if (has_vocab || has_merges) {
    const std::string here = has_vocab ? "vocab.json" : "merges.txt";
    const std::string other = has_vocab ? "merges.txt" : "vocab.json";
    fail_missing(folder, kMissing, here + " without " + other,
                 "copy the model's " + other + " or its tokenizer.json into the folder");
  }
  for (const Path& path : list_folder(folder)) {
    const std::string name = path.filename().string();
    if (path.extension() == ".tiktoken") {
      fail_missing(folder, "E_TOKENIZER_TIKTOKEN", "only " + name + ", which is not read",
                   "copy tokenizer.json of the -hf repository into this folder");
    }
    if (name == "vocab.txt") {
      fail_missing(folder, kMissing, "only " + name + ", which is not read",
                   "copy the model's tokenizer.json into the folder");
    }
  }
  fail_missing(folder, kMissing, "none of them",
               "copy the model's tokenizer files into the folder");
}

}  // namespace tessera
