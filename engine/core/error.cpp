// Formatting of errors and the end of the program on a broken invariant.
#include "engine/core/error.h"

#include <cstdio>
#include <cstdlib>

#include "engine/core/index.h"
#include "engine/core/utf8.h"

namespace tessera {

namespace {

bool is_bidi_or_control(char32_t c) {
  return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x061c || (c >= 0x200b && c <= 0x200f) ||
         (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069) || c == 0xfeff;
}

void append_hex(std::string& out, const char* format, unsigned value) {
  char buffer[16];
  std::snprintf(buffer, sizeof buffer, format, value);
  out += buffer;
}

}  // namespace

std::string escape_for_terminal(std::string_view text, std::size_t max_bytes) {
  static constexpr std::string_view kEllipsis = "...";
  std::string out;
  std::size_t at = 0;
  while (at < text.size()) {
    const Utf8Char c = decode_utf8(text, at);
    std::string piece;
    if (!c.valid) {
      append_hex(piece, "\\x%02x", byte_of(text[at]));
    } else if (is_bidi_or_control(c.code)) {
      append_hex(piece, "\\u{%04x}", static_cast<unsigned>(c.code));
    } else {
      piece = text.substr(at, c.length);
    }
    const bool last = at + c.length >= text.size();
    if (out.size() + piece.size() + (last ? 0 : kEllipsis.size()) > max_bytes) {
      out += kEllipsis;
      return out;
    }
    out += piece;
    at += c.length;
  }
  return out;
}

std::string format_error(const ErrorInfo& info) {
  std::string line;
  if (!info.file.empty()) line += info.file + ": ";
  if (!info.where.empty()) line += info.where + ": ";
  if (!info.expected.empty()) line += "expected " + info.expected;
  if (!info.found.empty()) line += (info.expected.empty() ? "" : ", found ") + info.found;
  if (!info.hint.empty()) line += " (" + info.hint + ")";
  return escape_for_terminal(line);
}

Error::Error(ErrorInfo info) : std::runtime_error(format_error(info)), info_(std::move(info)) {}

void refuse_model(const char* code, std::string file, std::string where, std::string expected,
                  std::string found, std::string hint) {
  throw Error({.kind = ErrorKind::kModel,
               .code = code,
               .file = std::move(file),
               .where = std::move(where),
               .expected = std::move(expected),
               .found = std::move(found),
               .hint = std::move(hint)});
}

void fail_expectation(const char* what, const char* file, unsigned line) {
  std::fprintf(stderr, "tessera: broken invariant: %s (%s:%u)\n", what, file, line);
  std::abort();
}

}  // namespace tessera
