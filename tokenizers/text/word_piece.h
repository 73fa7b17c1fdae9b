// The WordPiece model (Schuster and Nakajima 2012) as tokenizer.json files define it: the longest
// token from the left, again and again; pieces inside a word begin with a prefix such as "##".
#pragma once

#include "tokenizers/text/prefix_index.h"
#include "tokenizers/text/word_model.h"

namespace tessera {

struct WordPieceOptions {
  std::int32_t unknown = 0;        // for a word that the tokens cannot make
  std::string prefix = "##";       // of tokens that go on inside a word
  std::size_t max_characters = 0;  // a longer word is unknown
};

class WordPieceModel final : public WordModel {
 public:
  WordPieceModel(std::vector<std::string> tokens, WordPieceOptions options);

  void encode(std::string_view word, RegexScratch& scratch,
              std::vector<std::int32_t>& out) const override;

 private:
  WordPieceOptions options_;
  PrefixIndex first_;                // all tokens: what a word may begin with
  std::vector<std::string> inside_;  // by id, without the prefix; empty: not a token of this kind
  PrefixIndex inside_index_;
};

}  // namespace tessera
