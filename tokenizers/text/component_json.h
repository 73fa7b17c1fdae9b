// The normaliser, pre-tokeniser and decoder of tokenizer.json. Sequences are flattened; a type that
// is not known here is refused by name (E_TOK_NORMALIZER, E_TOK_PRETOKENIZER, E_TOK_DECODER).
#pragma once

#include "tokenizers/text/decoder.h"
#include "tokenizers/text/json_node.h"
#include "tokenizers/text/normalizer.h"
#include "tokenizers/text/pre_tokenizer.h"

namespace tessera {

Normalizer read_normalizer(const JsonNode& node);
PreTokenizer read_pre_tokenizer(const JsonNode& node);
Decoder read_decoder(const JsonNode& node);

// Calls visit(node, type) for a component, or for each member of a Sequence of them, at any depth.
// `members` is the field that holds a sequence's list. Error E_TOK_COUNT above kMaxComponents.
std::vector<std::pair<JsonNode, std::string>> flatten_components(const JsonNode& node,
                                                                 std::string_view members);

}  // namespace tessera
