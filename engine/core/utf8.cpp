// UTF-8 decoding by the table of well-formed byte sequences (Unicode 15, table 3-7).
#include "engine/core/utf8.h"
#include "engine/core/index.h"

namespace tessera {

Utf8Char decode_utf8(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) {
    return at + i < text.size() ? byte_of(text[at + i]) : 0u;
  };
  const auto tail = [&](std::size_t i) { return (byte(i) & 0xc0u) == 0x80u; };
  const unsigned lead = byte(0);
  if (lead < 0x80) return {static_cast<char32_t>(lead), 1, true};
  if (lead >= 0xc2 && lead <= 0xdf && tail(1)) {
    return {static_cast<char32_t>(((lead & 0x1fu) << 6) | (byte(1) & 0x3fu)), 2, true};
  }
  if ((lead & 0xf0u) == 0xe0u && tail(1) && tail(2)) {
    const char32_t code = ((lead & 0x0fu) << 12) | ((byte(1) & 0x3fu) << 6) | (byte(2) & 0x3fu);
    if (code >= 0x800 && (code < 0xd800 || code > 0xdfff)) return {code, 3, true};
  }
  if (lead >= 0xf0 && lead <= 0xf4 && tail(1) && tail(2) && tail(3)) {
    const char32_t code = ((lead & 0x07u) << 18) | ((byte(1) & 0x3fu) << 12) |
                          ((byte(2) & 0x3fu) << 6) | (byte(3) & 0x3fu);
    if (code >= 0x10000 && code <= 0x10ffff) return {code, 4, true};
  }
  return {};
}

bool is_valid_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    if (!c.valid) return false;
    at += c.length;
  }
  return true;
}

void append_utf8(std::string& out, char32_t code) {
  const auto put = [&](char32_t value) { out += static_cast<char>(value); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xc0 | (code >> 6));
    put(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    put(0xe0 | (code >> 12));
    put(0x80 | ((code >> 6) & 0x3f));
    put(0x80 | (code & 0x3f));
  } else {
    put(0xf0 | (code >> 18));
    put(0x80 | ((code >> 12) & 0x3f));
    put(0x80 | ((code >> 6) & 0x3f));
    put(0x80 | (code & 0x3f));
  }
}

char ascii_lower(char c) { return c >= 'A' && c <= 'Z' ? char_of(c - 'A' + 'a') : c; }

std::string ascii_lower_case(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = ascii_lower(c);
  return out;
}

}  // namespace tessera
