// The decoders of tokenizer.json: from the tokens of the ids back to text.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tokenizers/text/pre_tokenizer.h"
#include "tokenizers/text/regex.h"

namespace tessera {

struct DecodeByteLevel {};
struct DecodeByteFallback {};
struct DecodeFuse {};
struct DecodeReplace {
  Pattern pattern;
  std::string content;
};
// Takes up to `start` characters `content` from the front of each token, up to `stop` from its end.
struct DecodeStrip {
  char32_t content = U' ';
  std::size_t start = 0, stop = 0;
};
struct DecodeMetaspace {
  char32_t replacement = 0x2581;
  PrependScheme scheme = PrependScheme::kAlways;
};
// Tokens but the first lose `prefix` or get a space in front; `cleanup` takes out some spaces
// before English punctuation and contractions, as the reference does.
struct DecodeWordPiece {
  std::string prefix;
  bool cleanup = false;
};
// `suffix` ends a word: a space, nothing in the last token.
struct DecodeBpe {
  std::string suffix;
};
using DecodeStep = std::variant<DecodeByteLevel, DecodeByteFallback, DecodeFuse, DecodeReplace,
                                DecodeStrip, DecodeMetaspace, DecodeWordPiece, DecodeBpe>;
using Decoder = std::vector<DecodeStep>;

// Error kGeneral, E_TOK_TEXT_SIZE, above max_bytes.
std::string decode_tokens(const Decoder& decoder, std::vector<std::string> tokens,
                          std::size_t max_bytes, RegexScratch& scratch, const std::string& file);

// What a token adds to a text that others stand in front of: its bytes, of a character perhaps a part.
std::string token_bytes(const Decoder& decoder, std::string_view token, RegexScratch& scratch,
                        const std::string& file);

}  // namespace tessera
