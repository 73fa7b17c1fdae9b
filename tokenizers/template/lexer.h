// A template's source as tokens, with the white space rules of chat templates: a line break after a
// block tag goes, so do blanks in front of a block tag that begins a line; "-" and "+" as in Jinja.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::jinja {

enum class TokenKind : std::uint8_t {
  kData,        // text between tags
  kBlockBegin,  // {%
  kBlockEnd,
  kVariableBegin,  // {{
  kVariableEnd,
  kName,
  kString,  // text: its value, escapes resolved
  kInteger,
  kFloat,
  kOperator,  // text: as written
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::size_t at = 0;  // byte in the source
  std::string text;
  std::int64_t integer = 0;
  double number = 0;
  bool is(TokenKind wanted, std::string_view value) const {
    return kind == wanted && text == value;
  }
  bool name(std::string_view value) const { return is(TokenKind::kName, value); }
  bool op(std::string_view value) const { return is(TokenKind::kOperator, value); }
};

// Where a template was read, for messages.
struct Source {
  std::string file;
  std::string text;  // line ends are "\n", one at the end is dropped
  // "line 3, column 5"; columns count characters.
  std::string place(std::size_t at) const;
  // Error kModel with this code.
  [[noreturn]] void fail(std::size_t at, const char* code, std::string expected, std::string found,
                         std::string hint = {}) const;
};

// Error kModel: E_TEMPLATE_UTF8, E_TEMPLATE_SIZE.
Source make_source(std::string_view text, std::string file, std::size_t max_bytes);

// The last token is kEnd. Error kModel, E_TEMPLATE_SYNTAX.
std::vector<Token> tokenize(const Source& source);

}  // namespace tessera::jinja
