// tokenizer.json -> the parts of a TextTokenizer. Everything is checked here, so that the parts
// hold what they guarantee: ids dense and unique, merges between known tokens, patterns that
// compile.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/core/json.h"
#include "tokenizers/text/added_tokens.h"
#include "tokenizers/text/decoder.h"
#include "tokenizers/text/normalizer.h"
#include "tokenizers/text/pre_tokenizer.h"
#include "tokenizers/text/tokenizer_note.h"
#include "tokenizers/text/word_model.h"

namespace tessera {

// Ids that a template puts before and after those of the text.
struct IdTemplate {
  std::vector<std::int32_t> before, after;
};

struct TokenizerParts {
  std::string file;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  std::unique_ptr<const WordModel> model;
  std::vector<AddedToken> added;   // in the file's order
  AddedTokenFinder raw_finder;     // added tokens that are looked for before normalising
  AddedTokenFinder normal_finder;  // and after it
  std::vector<IdTemplate> templates;
  std::optional<Decoder> decoder;         // none: tokens are joined by spaces
  std::vector<std::int32_t> added_by_id;  // [vocab_size], index into `added` or -1
  std::unordered_map<std::string, std::int32_t> added_ids;
  std::vector<TokenizerNote> notes;
};

// Limits of one file.
constexpr std::size_t kMaxTokens = std::size_t{1} << 22;
constexpr std::size_t kMaxTokenBytes = 4096;
constexpr std::size_t kMaxComponents = 256;
constexpr std::size_t kMaxSpecialIds = 1024;

// The same without the checks of the whole: `json` is an object with the fields of tokenizer.json,
// of which "model" is not read if a model is given.
TokenizerParts read_tokenizer_parts(const Json& json, const std::string& file,
                                    std::unique_ptr<const WordModel> model);

// The file as JSON, with the keys and the version it must have.
Json parse_tokenizer_json(std::string_view text, const std::string& file);

// Error kModel, E_JSON* or E_TOK_*, naming file and JSON path.
TokenizerParts read_tokenizer_json(std::string_view text, const std::string& file);

}  // namespace tessera
