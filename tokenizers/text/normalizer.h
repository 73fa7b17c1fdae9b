// The normalisers of tokenizer.json, applied to a text before it is cut into words.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "tokenizers/text/charsmap.h"
#include "tokenizers/text/regex.h"
#include "tokenizers/text/unicode.h"

namespace tessera {

// A normalised text may grow to this; more is Error kGeneral, E_TOK_TEXT_SIZE.
constexpr std::size_t kMaxNormalizedBytes = std::size_t{16} << 20;

struct NormalizeForm {
  NormalForm form;
};
struct NormalizeLowercase {};
struct NormalizePrepend {
  std::string text;
};
struct NormalizeReplace {
  Pattern pattern;
  std::string content;
};
struct NormalizeStrip {
  bool left, right;
};
struct NormalizeCharsmap {
  Charsmap map;
};
struct NormalizeStripAccents {};  // removes marks
struct NormalizeNmt {};           // control characters vanish, odd spaces become spaces
struct NormalizeByteLevel {};     // bytes become the letters of GPT-2's byte alphabet
struct NormalizeBert {
  bool clean_text, chinese_characters, strip_accents, lowercase;
};
using NormalizeStep =
    std::variant<NormalizeForm, NormalizeLowercase, NormalizePrepend, NormalizeReplace,
                 NormalizeStrip, NormalizeCharsmap, NormalizeStripAccents, NormalizeNmt,
                 NormalizeByteLevel, NormalizeBert>;

// All steps in order; sequences in the file are flattened.
using Normalizer = std::vector<NormalizeStep>;

std::string normalize(const Normalizer& normalizer, std::string_view text, RegexScratch& scratch,
                      const std::string& file);

// Every match replaced by `content`. Error kGeneral, E_TOK_TEXT_SIZE, above max_bytes.
std::string replace_matches(const Pattern& pattern, std::string_view text, std::string_view content,
                            std::size_t max_bytes, RegexScratch& scratch, const std::string& file);

}  // namespace tessera
