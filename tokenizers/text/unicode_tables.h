// Where this machine's Unicode libraries and those of the reference tokenizer differ. The rows are
// measured over every code point by assets/recipes/text_tables.py.
#pragma once

#include <span>

namespace tessera {

// Code points [first, last] that the reference counts in a class and PCRE2 10.42 does not. Names:
// general categories ("Lu"), scripts ("Han"), "onig-word", "rust-word", "rust-number"; and
// "no-normalization", which the reference's normaliser leaves alone and utf8proc would change.
// "punctuation", "mark", "nonspacing-mark", "bert-control" and "grapheme-joins" are what the
// reference has besides utf8proc's class; the same names with "-not" are what it lacks.
struct ClassRange {
  const char* name;
  char32_t first, last;
};

// Lower-case pairs that utf8proc does not know: first + i -> lower + i.
struct LowerCaseRow {
  char32_t first, last, lower;
};

std::span<const ClassRange> class_additions();
std::span<const LowerCaseRow> lower_case_additions();

}  // namespace tessera
