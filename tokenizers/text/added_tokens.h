// Tokens that are looked for in a text before any other step: special tokens and words added after
// training. Leftmost first, longest first, as an Aho-Corasick automaton of that kind finds them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizers/text/prefix_index.h"
#include "tokenizers/text/regex.h"

namespace tessera {

struct AddedToken {
  std::int32_t id = 0;
  std::string content;
  std::string shown;         // what decoding gives: the content as it is looked for
  bool single_word = false;  // only where no word character touches it
  bool lstrip = false;       // swallows white space before it
  bool rstrip = false;       // swallows white space after it
  bool normalized = false;   // looked for in the normalised text
  bool special = false;
};

// Part of a text: an added token (id >= 0) or plain text (id < 0), in bytes.
struct TextPart {
  std::size_t begin = 0, end = 0;
  std::int32_t id = -1;
};

// Bytes [begin, end) of a text in which special tokens are ordinary characters.
struct PlainSpan {
  std::size_t begin = 0, end = 0;
};

class AddedTokenFinder {
 public:
  // `content` of each token is what to look for, not empty.
  explicit AddedTokenFinder(std::vector<AddedToken> tokens);
  AddedTokenFinder(AddedTokenFinder&&) = default;
  AddedTokenFinder& operator=(AddedTokenFinder&&) = default;

  // The parts of `text` (valid UTF-8) in order. `plain` lists spans in order, none touching the
  // next; no token is found that lies partly in one.
  std::vector<TextPart> split(std::string_view text, std::span<const PlainSpan> plain,
                              RegexScratch& scratch) const;
  bool has_specials() const { return has_specials_; }

 private:
  const AddedToken* longest_at(std::string_view text, std::size_t at, RegexScratch& scratch) const;
  bool touches_word(std::string_view text, std::size_t begin, std::size_t end,
                    RegexScratch& scratch) const;
  std::vector<AddedToken> tokens_;
  std::vector<std::string> contents_;  // of the tokens: what the index looks for
  PrefixIndex index_;
  std::optional<Regex> word_;
  bool has_specials_ = false;
};

}  // namespace tessera
