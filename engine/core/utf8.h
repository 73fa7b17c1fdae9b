// Strict UTF-8 (RFC 3629): overlong forms, surrogates and values past U+10FFFF are invalid.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tessera {

struct Utf8Char {
  char32_t code = 0xfffd;
  std::size_t length = 1;  // bytes to step over; 1 for an invalid byte
  bool valid = false;
};

// Decodes the character that starts at byte `at` (at < text.size()).
Utf8Char decode_utf8(std::string_view text, std::size_t at);

bool is_valid_utf8(std::string_view text);

void append_utf8(std::string& out, char32_t code);

// ASCII letters in lower case, other bytes as they are.
char ascii_lower(char c);
std::string ascii_lower_case(std::string_view text);

}  // namespace tessera
