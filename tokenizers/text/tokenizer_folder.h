// A tokenizer from a model's folder: tokenizer.json, else SentencePiece's tokenizer.model or
// spiece.model, else vocab.json with merges.txt. The last two become what the reference's
// converters make of them (transformers 4.57, convert_slow_tokenizer.py), by the class that
// tokenizer_config.json names.
#pragma once

#include <filesystem>
#include <span>
#include <string_view>

#include "tokenizers/text/tokenizer_json.h"

namespace tessera {

// Added tokens of `again` in tokenizer.json are special and have no flags, whatever the files say.
// Error kModel (E_IO_*, E_JSON*, E_TOK_*) names file and place. E_TOK_MISSING_FILE: none of these
// files is there; the message says what is, and what to do.
TokenizerParts read_tokenizer_folder(const std::filesystem::path& folder,
                                     std::span<const std::string_view> again = {});

}  // namespace tessera
