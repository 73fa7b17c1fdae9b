// The model of tokenizer.json: BPE, Unigram or WordPiece, with its vocabulary. A type that is not
// known here is refused by name (E_TOK_MODEL).
#pragma once

#include <memory>

#include "tokenizers/text/json_node.h"
#include "tokenizers/text/word_model.h"

namespace tessera {

// `added_count` tokens are listed outside the vocabulary: they may fill its holes.
std::unique_ptr<const WordModel> read_model(const JsonNode& node, std::size_t added_count);

// Tokens by id of an object token -> id; ids that it leaves out stay empty (added tokens may take
// them). `added_count` tokens are listed outside the vocabulary.
std::vector<std::string> read_vocab(const JsonNode& node, std::size_t added_count);

// Error E_TOK_TOKEN_EMPTY, E_TOK_TOKEN_LENGTH.
void check_token(const JsonNode& place, std::string_view token);
// An id that leaves a hole even if every token has one below it is refused before memory is taken.
std::size_t read_token_id(const JsonNode& node, std::size_t token_count);
// The token for messages, cut at 60 bytes.
std::string in_quotes(std::string_view token);

}  // namespace tessera
