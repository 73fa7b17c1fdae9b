// What a GGUF file says of texts: its tokenizer, its chat template, the ids that end a text.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/checkpoint/gguf.h"
#include "engine/checkpoint/gguf_write.h"
#include "engine/core/json.h"
#include "engine/families/folder_files.h"
#include "tokenizers/template/folder_template.h"
#include "tokenizers/text/listed_tokenizer.h"
#include "tokenizers/text/tokenizer.h"

namespace tessera {

struct GgufTexts {
  TextTokenizer tokenizer;
  std::vector<std::int32_t> stops;
  std::shared_ptr<const Json> generation;  // a generation_config.json that came along, or null
  std::optional<std::string> chat_template;
  std::vector<std::pair<std::string, std::string>> special_tokens;  // "bos_token": "<s>" ...
};

// Of the keys of a model's first file, whose name is `file`; `account` gets a row for each, and
// for those that are neither of the tokenizer nor of the architecture. Error kModel naming file and
// key: E_TOK_KEY for a key that is missing or of another kind, and as convert_listed().
GgufTexts read_gguf_texts(const GgufFile& gguf, const std::string& file, FolderAccount& account);

// The same of a file that nothing else was read of: the model's, or any part of it.
GgufTexts read_gguf_texts(const std::filesystem::path& file);

// The template with its special tokens, taken out of `texts`, which are of `file`; none without
// one.
std::optional<FolderTemplate> take_template(GgufTexts& texts, const std::filesystem::path& file);

// Keys of our own, which other readers pass over: all ids that end a text, in place of what the
// other keys say; a generation_config.json; how spaces stand after special tokens.
inline constexpr std::string_view kGgufStops = "tessera.stop_token_ids";
inline constexpr std::string_view kGgufGeneration = "tessera.generation_config";
inline constexpr std::string_view kGgufLegacy = "tessera.tokenizer_legacy";

// The keys that read_gguf_texts() reads: the tokenizer, and what ends a text.
void write_gguf_texts(const ListedTokenizer& listed, std::span<const std::int32_t> stops,
                      GgufKeys& keys);

}  // namespace tessera
