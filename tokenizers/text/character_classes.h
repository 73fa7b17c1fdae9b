// Classes of characters as the reference's own tables have them (they are of several Unicode
// versions): utf8proc's, corrected by the rows of unicode_tables.h; and grapheme clusters (UAX 29).
#pragma once

#include <cstddef>
#include <string_view>

namespace tessera {

// The rows of this name in unicode_tables.h hold the character.
bool in_table(std::string_view name, char32_t code);

bool is_punctuation(char32_t code);      // ASCII's and general category P
bool is_mark(char32_t code);             // general category M
bool is_nonspacing_mark(char32_t code);  // general category Mn
// What BertNormalizer removes: control, format and private characters, U+0000, U+FFFD; not the tab
// and the ends of lines.
bool is_bert_control(char32_t code);
bool is_chinese(char32_t code);  // as BertNormalizer has it

// Bytes of the extended grapheme cluster at byte `at` of valid UTF-8; at < text.size().
std::size_t grapheme_length(std::string_view text, std::size_t at);

}  // namespace tessera
