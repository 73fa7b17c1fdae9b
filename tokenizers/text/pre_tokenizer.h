// The pre-tokenisers of tokenizer.json: each cuts the words of a text further or rewrites them.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "tokenizers/text/regex.h"

namespace tessera {

// What becomes of the matches of a Split.
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

struct SplitWords {
  Pattern pattern;
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;  // matches and what lies between change places
};

// Bytes become the letters of GPT-2's byte alphabet, after a cut by `cut` if there is one.
struct ByteLevelWords {
  bool add_prefix_space = false;
  std::vector<SplitWords> cut;  // none or one
};

enum class PrependScheme { kNever, kFirst, kAlways };

// Spaces become `replacement`, which is also put in front.
struct MetaspaceWords {
  std::string replacement;  // one character
  PrependScheme scheme = PrependScheme::kAlways;
  bool split = true;
};

// Punctuation marks are the matches, each on its own.
struct PunctuationWords {
  SplitBehavior behavior = SplitBehavior::kIsolated;
};

using PreTokenizeStep = std::variant<SplitWords, ByteLevelWords, MetaspaceWords, PunctuationWords>;
using PreTokenizer = std::vector<PreTokenizeStep>;

// One buffer and the words in it, in order, never empty.
struct Words {
  struct Word {
    std::size_t begin = 0, end = 0;
    bool at_start = false;  // begins where the original text begins
  };
  std::string text;
  std::vector<Word> words;
};

// `text` is one stretch between added tokens.
Words pre_tokenize(const PreTokenizer& steps, std::string text, bool at_start,
                   RegexScratch& scratch);

// GPT-2's alphabet: the letter (UTF-8) of a byte, and back (-1: no letter of it).
std::string_view byte_letter(unsigned char byte);
int letter_byte(char32_t letter);

}  // namespace tessera
