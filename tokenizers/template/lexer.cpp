#include "tokenizers/template/lexer.h"

#include <array>
#include <charconv>
#include <cstdlib>

#include "engine/core/error.h"
#include "engine/core/index.h"
#include "engine/core/utf8.h"
#include "tokenizers/template/characters.h"

namespace tessera::jinja {

namespace {

constexpr const char* kSyntax = "E_TEMPLATE_SYNTAX";

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || byte_of(c) >= 0x80;
}

bool is_name_part(char c) { return is_name_start(c) || is_digit(c); }

std::size_t skip_spaces(std::string_view text, std::size_t at) {
  while (at < text.size()) {
    const Utf8Char c = decode_utf8(text, at);
    if (!is_space(c.code)) break;
    at += c.length;
  }
  return at;
}

std::string_view without_end_spaces(std::string_view text) {
  std::size_t end = 0;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    at += c.length;
    if (!is_space(c.code)) end = at;
  }
  return text.substr(0, end);
}

class Lexer {
 public:
  explicit Lexer(const Source& source) : source_(source), text_(source.text) {}

  std::vector<Token> run() {
    while (at_ < text_.size()) read_data();
    add(TokenKind::kEnd, text_.size());
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(std::size_t at, std::string expected, std::string found) const {
    source_.fail(at, kSyntax, std::move(expected), std::move(found));
  }

  bool starts(std::size_t at, std::string_view what) const {
    return text_.substr(at, what.size()) == what;
  }

  Token& add(TokenKind kind, std::size_t at, std::string_view text = {}) {
    return tokens_.emplace_back(Token{kind, at, std::string(text)});
  }

  // The sign of a tag that begins at `at` with two characters: '-', '+' or none.
  char sign_of(std::size_t at) const {
    const char c = at + 2 < text_.size() ? text_[at + 2] : '\0';
    return c == '-' || c == '+' ? c : '\0';
  }

  void add_data(std::size_t begin, std::size_t end, char sign, bool is_variable) {
    std::string_view data = text_.substr(begin, end - begin);
    if (sign == '-') {
      data = without_end_spaces(data);
    } else if (sign == '\0' && !is_variable) {
      const std::size_t line = data.rfind('\n');
      const std::size_t start = line == std::string_view::npos ? 0 : line + 1;
      if ((start > 0 || line_starts_) && without_end_spaces(data.substr(start)).empty()) {
        data = data.substr(0, start);
      }
    }
    if (!data.empty()) add(TokenKind::kData, begin, data);
  }

  std::size_t next_tag(std::size_t at) const {
    for (; (at = text_.find('{', at)) != std::string_view::npos; ++at) {
      const char c = at + 1 < text_.size() ? text_[at + 1] : '\0';
      if (c == '{' || c == '%' || c == '#') return at;
    }
    return text_.size();
  }

  // Ends a tag in front of `end`, whose mark has two characters; `sign` is that in front of it.
  void close_tag(std::size_t end, char sign, bool trim_line) {
    at_ = end;
    if (sign == '-') {
      at_ = skip_spaces(text_, at_);
    } else if (sign != '+' && trim_line && at_ < text_.size() && text_[at_] == '\n') {
      ++at_;
    }
    line_starts_ = text_[at_ - 1] == '\n';
  }

  void read_data() {
    const std::size_t begin = at_, tag = next_tag(at_);
    if (tag == text_.size()) {
      add(TokenKind::kData, begin, text_.substr(begin));
      at_ = tag;
      return;
    }
    const char what = text_[tag + 1], sign = sign_of(tag);
    add_data(begin, tag, sign, what == '{');
    at_ = tag + 2 + (sign != '\0' ? 1 : 0);
    line_starts_ = false;
    if (what == '#') return read_comment(tag);
    if (what == '%' && read_raw(tag)) return;
    add(what == '{' ? TokenKind::kVariableBegin : TokenKind::kBlockBegin, tag);
    read_tag(what == '{', tag);
  }

  void read_comment(std::size_t tag) {
    const std::size_t end = text_.find("#}", at_);
    if (end == std::string_view::npos) fail(tag, "the end of a comment", "none");
    close_tag(end + 2, end > at_ ? sign_in_front(end) : '\0', true);
  }

  char sign_in_front(std::size_t end) const {
    const char c = text_[end - 1];
    return c == '-' || c == '+' ? c : '\0';
  }

  // {% raw %} ... {% endraw %}
  bool read_raw(std::size_t tag) {
    std::size_t at = skip_spaces(text_, at_);
    if (!starts(at, "raw")) return false;
    at = skip_spaces(text_, at + 3);
    const bool minus = starts(at, "-%}");
    if (!minus && !starts(at, "%}")) return false;
    close_tag(at + (minus ? 3 : 2), minus ? '-' : '\0', false);
    const std::size_t begin = at_;
    for (std::size_t end = begin; (end = text_.find("{%", end)) != std::string_view::npos; ++end) {
      const char sign = sign_of(end);
      std::size_t after = skip_spaces(text_, end + 2 + (sign != '\0' ? 1 : 0));
      if (!starts(after, "endraw")) continue;
      after = skip_spaces(text_, after + 6);
      const bool signed_end = starts(after, "-%}") || starts(after, "+%}");
      if (!signed_end && !starts(after, "%}")) continue;
      add_data(begin, end, sign, false);
      close_tag(after + (signed_end ? 3 : 2), signed_end ? text_[after] : '\0', true);
      return true;
    }
    fail(tag, "the end of a raw block", "none");
  }

  void read_tag(bool is_variable, std::size_t tag) {
    const std::string_view end = is_variable ? "}}" : "%}";
    std::string open;  // closing marks that are awaited
    for (;;) {
      at_ = skip_spaces(text_, at_);
      if (at_ >= text_.size()) fail(tag, "the end of a tag: " + std::string(end), "none");
      if (open.empty()) {
        const bool sign = text_[at_] == '-' || (text_[at_] == '+' && !is_variable);
        if (starts(at_ + (sign ? 1 : 0), end)) {
          add(is_variable ? TokenKind::kVariableEnd : TokenKind::kBlockEnd, at_);
          return close_tag(at_ + end.size() + (sign ? 1 : 0), sign ? text_[at_] : '\0',
                           !is_variable);
        }
      }
      read_token(open);
    }
  }

  void read_token(std::string& open) {
    const char c = text_[at_];
    if (is_digit(c)) return read_number();
    if (is_name_start(c)) {
      std::size_t end = at_;
      while (end < text_.size() && is_name_part(text_[end])) ++end;
      add(TokenKind::kName, at_, text_.substr(at_, end - at_));
      at_ = end;
      return;
    }
    if (c == '\'' || c == '"') return read_string();
    read_operator(open);
  }

  void read_operator(std::string& open) {
    static constexpr std::array<std::string_view, 26> kOperators = {
        "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
        "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
    for (const std::string_view op : kOperators) {
      if (!starts(at_, op)) continue;
      if (op == "(" || op == "[" || op == "{") open += op == "(" ? ')' : op == "[" ? ']' : '}';
      if (op == ")" || op == "]" || op == "}") {
        if (open.empty() || open.back() != op[0]) {
          fail(at_, open.empty() ? "no closing bracket" : std::string(1, open.back()),
               std::string(op));
        }
        open.pop_back();
      }
      add(TokenKind::kOperator, at_, op);
      at_ += op.size();
      return;
    }
    fail(at_, "a token of an expression",
         std::string(text_.substr(at_, decode_utf8(text_, at_).length)));
  }

  // Digits with single underscores between them.
  std::size_t digits_end(std::size_t at) const {
    while (at < text_.size() &&
           (is_digit(text_[at]) || (text_[at] == '_' && at + 1 < text_.size() &&
                                    is_digit(text_[at + 1]) && is_digit(text_[at - 1])))) {
      ++at;
    }
    return at;
  }

  void read_number() {
    const std::size_t begin = at_;
    std::size_t end = digits_end(at_);
    bool is_float = false;
    const bool after_dot = begin > 0 && text_[begin - 1] == '.';
    if (!after_dot && end + 1 < text_.size() && text_[end] == '.' && is_digit(text_[end + 1])) {
      end = digits_end(end + 1);
      is_float = true;
    }
    if (!after_dot && end < text_.size() && (text_[end] == 'e' || text_[end] == 'E')) {
      std::size_t exponent = end + 1;
      if (exponent < text_.size() && (text_[exponent] == '+' || text_[exponent] == '-')) ++exponent;
      if (exponent < text_.size() && is_digit(text_[exponent])) {
        end = digits_end(exponent);
        is_float = true;
      }
    }
    std::string digits;
    for (const char c : text_.substr(begin, end - begin)) {
      if (c != '_') digits += c;
    }
    if (is_float) {
      add(TokenKind::kFloat, begin).number = std::strtod(digits.c_str(), nullptr);
    } else {
      if (digits.size() > 1 && digits.find_first_not_of('0') != std::string::npos &&
          digits[0] == '0') {
        fail(begin, "a number without leading zeros", digits);
      }
      std::int64_t value = 0;
      const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), value);
      if (read.ec != std::errc()) fail(begin, "an integer of 64 bits", digits);
      add(TokenKind::kInteger, begin).integer = value;
    }
    at_ = end;
  }

  void read_string() {
    const char quote = text_[at_];
    std::size_t end = at_ + 1;
    while (end < text_.size() && text_[end] != quote) {
      end += text_[end] == '\\' ? std::size_t{2} : std::size_t{1};
    }
    if (end >= text_.size()) fail(at_, "the end of a string", "none");
    add(TokenKind::kString, at_, unescape(at_ + 1, end));
    at_ = end + 1;
  }

  // Python's escapes; an unknown one stays as it is written.
  std::string unescape(std::size_t at, std::size_t end) const {
    static constexpr std::string_view kFrom = "abfnrtv\\'\"", kTo = "\a\b\f\n\r\t\v\\'\"";
    std::string out;
    while (at < end) {
      if (text_[at] != '\\') {
        out += text_[at++];
        continue;
      }
      const char c = text_[at + 1];
      if (const std::size_t found = kFrom.find(c); found != std::string_view::npos) {
        out += kTo[found];
        at += 2;
      } else if (c == '\n') {
        at += 2;
      } else if (c >= '0' && c <= '7') {
        unsigned code = 0;
        std::size_t digit = at + 1;
        for (; digit < end && digit < at + 4 && text_[digit] >= '0' && text_[digit] <= '7';
             ++digit) {
          code = code * 8 + narrow<unsigned>(text_[digit] - '0');
        }
        append_utf8(out, code);
        at = digit;
      } else if (c == 'x' || c == 'u' || c == 'U') {
        at = unescape_hex(at, end, c == 'x' ? 2 : c == 'u' ? 4 : 8, out);
      } else if (c == 'N') {
        fail(at, "escapes without names of characters", "\\N");
      } else {
        out += '\\';
        ++at;
      }
    }
    return out;
  }

  std::size_t unescape_hex(std::size_t at, std::size_t end, std::size_t digits,
                           std::string& out) const {
    std::uint32_t code = 0;
    const char* first = text_.data() + at + 2;
    const char* last = at + 2 + digits <= end ? first + digits : first;
    const auto read = std::from_chars(first, last, code, 16);
    if (read.ec != std::errc() || read.ptr != first + digits || code > 0x10ffff ||
        (code >= 0xd800 && code <= 0xdfff)) {
      fail(at, "an escape of a character", std::string(text_.substr(at, 2 + digits)));
    }
    append_utf8(out, code);
    return at + 2 + digits;
  }

  const Source& source_;
  std::string_view text_;
  std::size_t at_ = 0;
  bool line_starts_ = true;  // the tag in front of the data ended a line
  std::vector<Token> tokens_;
};

}  // namespace

std::string Source::place(std::size_t at) const {
  std::size_t line = 1, column = 1;
  for (std::size_t i = 0; i < at && i < text.size(); ++i) {
    if (text[i] == '\n') {
      ++line;
      column = 1;
    } else if ((byte_of(text[i]) & 0xc0u) != 0x80u) {
      ++column;
    }
  }
  return "line " + std::to_string(line) + ", column " + std::to_string(column);
}

void Source::fail(std::size_t at, const char* code, std::string expected, std::string found,
                  std::string hint) const {
  throw Error({.kind = ErrorKind::kModel,
               .code = code,
               .file = file,
               .where = place(at),
               .expected = std::move(expected),
               .found = std::move(found),
               .hint = std::move(hint)});
}

Source make_source(std::string_view text, std::string file, std::size_t max_bytes) {
  Source out{std::move(file), {}};
  if (text.size() > max_bytes) {
    out.fail(0, "E_TEMPLATE_SIZE", "a template of at most " + std::to_string(max_bytes) + " bytes",
             std::to_string(text.size()));
  }
  if (!is_valid_utf8(text)) out.fail(0, "E_TEMPLATE_UTF8", "UTF-8", "bytes that are not");
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r') {
      out.text += '\n';
      if (i + 1 < text.size() && text[i + 1] == '\n') ++i;
    } else {
      out.text += text[i];
    }
  }
  if (!out.text.empty() && out.text.back() == '\n') out.text.pop_back();
  return out;
}

std::vector<Token> tokenize(const Source& source) { return Lexer(source).run(); }

}  // namespace tessera::jinja
