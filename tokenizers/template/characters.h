// Characters as Python's str sees them: white space, line ends, case with its special mappings.
#pragma once

#include <string_view>

namespace tessera::jinja {

bool is_space(char32_t c);      // str.isspace(), str.strip()
bool is_line_end(char32_t c);   // str.splitlines()
bool is_printable(char32_t c);  // what repr() writes as it is
bool is_alpha(char32_t c);
bool is_decimal(char32_t c);  // Nd
bool is_numeric(char32_t c);  // Nd, Nl, No
bool is_upper(char32_t c);
bool is_lower(char32_t c);
bool is_title(char32_t c);  // Lt
bool is_cased(char32_t c);

enum class CaseMapping : unsigned char { kUpper, kLower, kTitle };
// The mapped character, or several (U+00DF in upper case is "SS"), as UTF-8 in `buffer`; gives the
// part of the buffer that was written.
std::string_view map_case(char32_t c, CaseMapping mapping, char (&buffer)[16]);

}  // namespace tessera::jinja
