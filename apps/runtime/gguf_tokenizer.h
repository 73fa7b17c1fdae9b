// What a GGUF file says of texts: its tokenizer, its chat template, the ids that end a text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/checkpoint/gguf.h"
#include "engine/families/folder_files.h"
#include "tokenizers/text/tokenizer.h"

namespace tessera {

struct GgufTexts {
  TextTokenizer tokenizer;
  std::vector<std::int32_t> stops;
  std::optional<std::string> chat_template;
  std::vector<std::pair<std::string, std::string>> special_tokens;  // "bos_token": "<s>" ...
};

// Of the keys of a model's first file, whose name is `file`; `account`, unless null, gets a row for
// each, and for those that are neither of the tokenizer nor of the architecture. Error kModel
// naming file and key: E_TOK_KEY for a key that is missing or of another kind, and as
// convert_listed().
GgufTexts read_gguf_texts(const GgufFile& gguf, const std::string& file,
                          FolderAccount* account = nullptr);

}  // namespace tessera
