// The Unigram model (Kudo 2018) as tokenizer.json and SentencePiece files define it: each token has
// a score, and a word becomes the tokens whose scores have the greatest sum (Viterbi).
#pragma once

#include "tokenizers/text/prefix_index.h"
#include "tokenizers/text/word_model.h"

namespace tessera {

struct UnigramOptions {
  std::optional<std::int32_t> unknown;  // id for characters without a token; a run of them is one
  bool byte_fallback = false;           // "<0xNN>" tokens for what has no token, if all are there
  std::string file;                     // the name in messages
};

class UnigramModel final : public WordModel {
 public:
  // `scores` by id, finite, as many as tokens.
  UnigramModel(std::vector<std::string> tokens, std::vector<double> scores, UnigramOptions options);

  // Error kGeneral, E_TOK_NO_UNKNOWN, for a character without a token if there is no unknown one.
  void encode(std::string_view word, RegexScratch& scratch,
              std::vector<std::int32_t>& out) const override;

 private:
  struct Node {  // the best way to cut the bytes before a place
    double score = 0;
    std::size_t begin = 0;  // of the last token of that way
    std::int32_t id = -2;   // its id; -2: the place cannot be reached
  };
  std::vector<Node> best_cuts(std::string_view word, RegexScratch& scratch) const;
  std::int32_t unknown_id() const;
  void append(std::string_view piece, std::vector<std::int32_t>& out) const;

  std::vector<double> scores_;         // by id
  std::vector<std::int32_t> last_id_;  // by id, of equal tokens: the one that counts
  UnigramOptions options_;
  double unknown_score_ = 0;
  PrefixIndex index_;
  std::vector<std::int32_t> byte_ids_;
};

}  // namespace tessera
