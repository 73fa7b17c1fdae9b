// Vocabulary files other than tokenizer.json, made into the parts of a tokenizer.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "tokenizers/text/sentencepiece.h"
#include "tokenizers/text/tokenizer_config.h"
#include "tokenizers/text/tokenizer_json.h"

namespace tessera {

// A class that reads SentencePiece's file.
struct PieceClass {
  std::string_view name;
  TokenizerParts (*convert)(const SentencePieceModel& model, const TokenizerConfig& config,
                            const std::string& file);
  // It asks `legacy`, add_bos_token and add_prefix_space, of which releases make different things.
  bool switches;
};
// LlamaTokenizer where no class is named; null for a class that does not read such files.
const PieceClass* piece_class(std::string_view name);

// By its class; one without a row is refused by name, E_TOK_CLASS. `file` is the model file's name
// in messages.
TokenizerParts convert_sentencepiece(SentencePieceModel model, const TokenizerConfig& config,
                                     const std::string& file);

// Qwen2Tokenizer, GPT2Tokenizer and CLIPTokenizer from the texts of the two files.
struct VocabAndMerges {
  std::string vocab, merges;            // contents
  std::string vocab_file, merges_file;  // names
};
TokenizerParts convert_vocab_and_merges(const VocabAndMerges& files, const TokenizerConfig& config);

// The added tokens of the reference: `own` (of the vocabulary's file), then those that the
// configuration lists, then its special tokens; `roles` are those of the class, in its order. Each
// gets the id of the vocabulary or the next one after it. Error E_TOK_ADDED_ID if a listed token
// would get another id than it is listed with.
Json added_tokens_json(const WordModel& model, std::vector<AddedToken> own,
                       const TokenizerConfig& config, const std::vector<AddedToken>& roles);

// What the configuration adds to the added tokens of a tokenizer.json, which have ids already, or
// changes in how they are looked for: all of them then, by id. Nothing if it adds and changes
// nothing. Special tokens that it names are special. Error E_TOK_ADDED_ID as above.
std::optional<Json> added_by_config(const TokenizerParts& parts, const TokenizerConfig& config);

// The special token of a role, or of the class if the configuration does not have the role; none if
// it is null. Written as a string, it is looked for in normalised text if `normalized`.
std::optional<AddedToken> special_token(const TokenizerConfig& config, std::string_view role,
                                        std::string_view fallback, bool normalized);

}  // namespace tessera
