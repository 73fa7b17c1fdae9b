// A text that grows token by token: what of it can be shown. Decodes a few tokens at a time, so
// that a text of n tokens costs n, not n squared.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tokenizers/text/tokenizer.h"

namespace tessera {

class TextStream {
 public:
  // Borrowed.
  explicit TextStream(const TextTokenizer& tokenizer) : tokenizer_(tokenizer) {}

  // What the tokens add to the text, as far as its characters are whole; tokens among `stops` are
  // no part of it.
  std::string add(std::span<const std::int32_t> tokens, std::span<const std::int32_t> stops);
  // What waited for the rest of a character that does not come, once the text is over.
  std::string rest() { return show(0); }
  // All of it, decoded at once.
  std::string whole() const { return tokenizer_.decode(tokens_); }

 private:
  // What is not shown yet, unless it can wait with fewer tokens than these.
  std::string show(std::size_t most_waiting);

  const TextTokenizer& tokenizer_;
  std::vector<std::int32_t> tokens_;
  // Tokens before begin_ are shown and of no more use; those up to shown_ are shown, and decoded
  // again with what follows: a decoder treats the first token otherwise (a space in front of it).
  std::size_t begin_ = 0, shown_ = 0;
};

}  // namespace tessera
