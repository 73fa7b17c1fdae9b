// Tokens that are looked for in a text before any other step: special tokens and words added after
// training. Leftmost first, longest first, as an Aho-Corasick automaton of that kind finds them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

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

class AddedTokenFinder {
 public:
  // `content` of each token is what to look for, not empty.
  explicit AddedTokenFinder(std::vector<AddedToken> tokens);

  // The parts of `text` (valid UTF-8) in order. `specials` false: special tokens are plain text.
  std::vector<TextPart> split(std::string_view text, bool specials, RegexScratch& scratch) const;

 private:
  const AddedToken* longest_at(std::string_view text, std::size_t at, RegexScratch& scratch) const;
  bool touches_word(std::string_view text, std::size_t begin, std::size_t end,
                    RegexScratch& scratch) const;
  std::vector<AddedToken> tokens_;  // sorted by content; of equal ones the first given
  std::vector<bool> first_bytes_;   // [256]
  std::optional<Regex> word_;
};

}  // namespace tessera
