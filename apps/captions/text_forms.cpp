// Escapes, orders and sums. RFC 8259 allows \uNNNN for any character, which json_line() uses.
#include "apps/captions/text_forms.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "engine/core/index.h"
#include "engine/core/utf8.h"

namespace tessera {

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Characters that move the cursor, turn the writing direction or cannot be seen.
bool is_unseen(char32_t c) {
  return c == 0x061c || (c >= 0x200b && c <= 0x200f) || (c >= 0x2028 && c <= 0x202e) ||
         (c >= 0x2060 && c <= 0x2069) || c == 0xfeff;
}
bool is_control(char32_t c) { return c < 0x20 || (c >= 0x7f && c < 0xa0); }

std::string hex_text(const char* format, unsigned long long value) {
  char buffer[24];
  std::snprintf(buffer, sizeof buffer, format, value);
  return buffer;
}

// The digits at `at` without leading zeros; moves `at` past all of them.
std::string_view number_at(std::string_view text, std::size_t& at) {
  while (at < text.size() && text[at] == '0') ++at;
  const std::size_t begin = at;
  while (at < text.size() && is_digit(text[at])) ++at;
  return text.substr(begin, at - begin);
}

constexpr std::string_view kRaw = "raw:";
constexpr std::string_view kListed = "//";

}  // namespace

bool natural_less(std::string_view a, std::string_view b) {
  std::size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (is_digit(a[i]) && is_digit(b[j])) {
      const std::string_view left = number_at(a, i), right = number_at(b, j);
      if (left.size() != right.size()) return left.size() < right.size();
      if (left != right) return left < right;
      continue;
    }
    const auto left = byte_of(ascii_lower(a[i++]));
    const auto right = byte_of(ascii_lower(b[j++]));
    if (left != right) return left < right;
  }
  if ((i < a.size()) != (j < b.size())) return j < b.size();
  return a < b;
}

bool is_printable(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    if (!c.valid || is_control(c.code) || is_unseen(c.code)) return false;
    at += c.length;
  }
  return true;
}

std::string stable_text(std::string_view name) {
  if (is_printable(name) && !name.starts_with(kRaw)) return std::string(name);
  std::string out(kRaw);
  for (const char c : name) {
    const auto byte = byte_of(c);
    const bool plain = byte > 0x20 && byte < 0x7f && c != '%';
    out += plain ? std::string(1, c) : hex_text("%%%02X", byte);
  }
  return out;
}

std::string name_of_stable(std::string_view text) {
  if (!text.starts_with(kRaw)) return std::string(text);
  std::string out;
  for (std::size_t at = kRaw.size(); at < text.size(); ++at) {
    unsigned value = 0;
    const bool escape =
        text[at] == '%' && at + 2 < text.size() &&
        std::from_chars(text.data() + at + 1, text.data() + at + 3, value, 16).ec == std::errc{};
    out += escape ? char_of(value) : text[at];
    if (escape) at += 2;
  }
  return out;
}

std::string listed_id(std::string_view given) { return std::string(kListed).append(given); }

std::string shown_id(std::string_view id) {
  return std::string(id.starts_with(kListed) ? id.substr(kListed.size()) : id);
}

std::string clean_caption(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    if (!c.valid) {
      append_utf8(out, 0xfffd);
    } else if (c.code == '\n' || c.code == '\t') {
      out += static_cast<char>(c.code);
    } else if (is_control(c.code)) {
      out += ' ';
    } else if (!is_unseen(c.code)) {
      out += text.substr(at, c.length);
    }
    at += c.length;
  }
  const std::size_t begin = out.find_first_not_of(" \t\n");
  if (begin == std::string::npos) return {};
  return out.substr(begin, out.find_last_not_of(" \t\n") - begin + 1);
}

std::string json_line(const Json& value) {
  const std::string plain =
      value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  std::string out;
  for (std::size_t at = 0; at < plain.size();) {
    const Utf8Char c = decode_utf8(plain, at);
    if (is_control(c.code) || is_unseen(c.code)) {
      out += hex_text("\\u%04llx", c.code);
    } else {
      out += plain.substr(at, c.length);
    }
    at += c.length;
  }
  return out;
}

std::string csv_row(std::span<const CsvCell> cells, bool formula_safe) {
  static constexpr std::string_view kCommands = "=+-@\t\r";
  std::string row;
  for (const CsvCell& cell : cells) {
    if (&cell != cells.data()) row += ',';
    const bool armed = cell.is_text && formula_safe && !cell.text.empty() &&
                       kCommands.find(cell.text.front()) != std::string_view::npos;
    const std::string text = (armed ? "'" : "") + cell.text;
    if (text.find_first_of(",\"\r\n") == std::string::npos) {
      row += text;
      continue;
    }
    row += '"';
    for (const char c : text) row += c == '"' ? std::string("\"\"") : std::string(1, c);
    row += '"';
  }
  return row + "\r\n";
}

void ContentHash::add(std::string_view bytes) {
  for (const char c : bytes) {
    state_ = (state_ ^ byte_of(c)) * 0x100000001b3;
  }
}

std::string ContentHash::hex() const { return hex_text("%016llx", state_); }

std::string content_hash(std::string_view bytes) {
  ContentHash hash;
  hash.add(bytes);
  return hash.hex();
}

std::uint32_t crc32c(std::string_view bytes) {
  static const auto kTable = [] {
    std::array<std::uint32_t, 256> table{};
    for (std::uint32_t i = 0; i < 256; ++i) {
      std::uint32_t value = i;
      for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) ? 0x82f63b78u : 0u);
      table[i] = value;
    }
    return table;
  }();
  std::uint32_t sum = ~0u;
  for (const char c : bytes) sum = (sum >> 8) ^ kTable[(sum ^ byte_of(c)) & 255];
  return ~sum;
}

}  // namespace tessera
