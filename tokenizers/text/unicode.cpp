// Normal forms from utf8proc's decomposition and composition data; the reordering of combining
// marks is our own, because utf8proc's swaps neighbours and is quadratic on a long run of marks.
#include "tokenizers/text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include "engine/core/error.h"
#include "engine/core/index.h"
#include "engine/core/utf8.h"
#include "tokenizers/text/character_classes.h"
#include "tokenizers/text/unicode_tables.h"

namespace tessera {

namespace {

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return (c & 0x80) == 0; });
}

int combining_class(std::int32_t code) { return utf8proc_get_property(code)->combining_class; }

// Stable sort of each run of marks by combining class (UAX 15, canonical ordering).
void order_marks(std::vector<std::int32_t>& codes) {
  std::size_t at = 0;
  while (at < codes.size()) {
    if (combining_class(codes[at]) == 0) {
      ++at;
      continue;
    }
    std::size_t end = at;
    while (end < codes.size() && combining_class(codes[end]) != 0) ++end;
    std::stable_sort(
        codes.begin() + to_index(at), codes.begin() + to_index(end),
        [](std::int32_t a, std::int32_t b) { return combining_class(a) < combining_class(b); });
    at = end;
  }
}

void append_codes(std::string& out, std::vector<std::int32_t>& codes, NormalForm form) {
  order_marks(codes);
  std::size_t count = codes.size();
  if (form == NormalForm::kNfc || form == NormalForm::kNfkc) {
    const auto composed = utf8proc_normalize_utf32(
        codes.data(), narrow<utf8proc_ssize_t>(count),
        static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    expects(composed >= 0, "composition of valid code points");
    count = to_size(composed);
  }
  for (std::size_t i = 0; i < count; ++i) append_utf8(out, static_cast<char32_t>(codes[i]));
  codes.clear();
}

// White space as Python's str.strip() sees it.
bool is_python_space(char32_t c) {
  return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
         c == 0x3000;
}

}  // namespace

std::string normalize_unicode(std::string_view text, NormalForm form) {
  if (is_ascii(text)) return std::string(text);
  const bool compatible = form == NormalForm::kNfkc || form == NormalForm::kNfkd;
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE |
                                                      (compatible ? UTF8PROC_COMPAT : 0));
  std::string out;
  out.reserve(text.size());
  std::vector<std::int32_t> codes;
  std::array<std::int32_t, 64> parts;  // the longest decomposition has 18 characters
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    expects(c.valid, "normalize_unicode reads valid UTF-8");
    at += c.length;
    if (in_table("no-normalization", c.code)) {  // the reference is too old to know it
      append_codes(out, codes, form);
      append_utf8(out, c.code);
      continue;
    }
    int boundary = 0;
    const auto count = utf8proc_decompose_char(static_cast<std::int32_t>(c.code), parts.data(),
                                               parts.size(), options, &boundary);
    expects(count >= 0 && count <= std::ssize(parts), "decomposition fits");
    codes.insert(codes.end(), parts.begin(), parts.begin() + count);
  }
  append_codes(out, codes, form);
  return out;
}

std::string lower_case(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    at += c.length;
    if (c.code < 0x80) {
      out.push_back(char_of(c.code >= 'A' && c.code <= 'Z' ? c.code + 32 : c.code));
      continue;
    }
    if (c.code == 0x130) {  // the one letter whose full lower case has two characters
      out += "i\xCC\x87";
      continue;
    }
    auto lower = static_cast<char32_t>(utf8proc_tolower(static_cast<std::int32_t>(c.code)));
    for (const LowerCaseRow& row : lower_case_additions()) {
      if (c.code >= row.first && c.code <= row.last) lower = row.lower + (c.code - row.first);
    }
    append_utf8(out, lower);
  }
  return out;
}

bool is_white_space(char32_t code) {
  return (code >= 0x9 && code <= 0xd) || code == 0x20 || code == 0x85 || code == 0xa0 ||
         code == 0x1680 || (code >= 0x2000 && code <= 0x200a) || code == 0x2028 || code == 0x2029 ||
         code == 0x202f || code == 0x205f || code == 0x3000;
}

namespace {

// Bytes of the sequence at `at` that are well formed so far, and whether it is complete.
struct Utf8Part {
  std::size_t length;
  bool complete;
};

Utf8Part part_at(std::string_view bytes, std::size_t at) {
  const auto byte = [&](std::size_t i) { return byte_of(bytes[i]); };
  const unsigned lead = byte(at);
  if (lead < 0x80) return {1, true};
  if (lead < 0xc2 || lead > 0xf4) return {1, false};
  const std::size_t length = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  for (std::size_t i = 1; i < length; ++i) {
    unsigned low = 0x80, high = 0xbf;
    if (i == 1 && lead == 0xe0) low = 0xa0;
    if (i == 1 && lead == 0xed) high = 0x9f;
    if (i == 1 && lead == 0xf0) low = 0x90;
    if (i == 1 && lead == 0xf4) high = 0x8f;
    if (at + i >= bytes.size() || byte(at + i) < low || byte(at + i) > high) return {i, false};
  }
  return {length, true};
}

}  // namespace

std::string utf8_lossy(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  for (std::size_t at = 0; at < bytes.size();) {
    const Utf8Part part = part_at(bytes, at);
    if (part.complete) {
      out.append(bytes.substr(at, part.length));
    } else {
      out += "\xEF\xBF\xBD";
    }
    at += part.length;
  }
  return out;
}

std::string_view strip_ends(std::string_view text, bool left, bool right) {
  std::size_t begin = text.size(), end = 0;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    if (!c.valid || !is_python_space(c.code)) {
      begin = std::min(begin, at);
      end = at + c.length;
    }
    at += c.length;
  }
  if (!left) begin = 0;
  if (!right) end = text.size();
  return begin < end ? text.substr(begin, end - begin) : std::string_view{};
}

}  // namespace tessera
