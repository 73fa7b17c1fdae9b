// A pull scanner for strict JSON (RFC 8259), the one reader of strangers' JSON in the program: the
// document tree of json.h and the fixed grammars of weight headers stand on it. No recursion, no
// memory beyond the depth stack and one decoded string.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/core/index.h"
#include "engine/core/json.h"

namespace tessera {

enum class JsonKind : std::uint8_t {
  kObjectBegin,
  kObjectEnd,
  kArrayBegin,
  kArrayEnd,
  kKey,
  kString,
  kNumber,
  kTrue,
  kFalse,
  kNull,
  kEnd  // the document is over
};

std::string_view json_kind_name(JsonKind kind);  // "an object", "a string", ...

struct JsonToken {
  JsonKind kind = JsonKind::kEnd;
  std::size_t offset = 0;  // of the first byte, in the text given
  // Keys and strings: decoded, valid until the next call of next(). Numbers: as written.
  std::string_view text;
};

class JsonScanner {
 public:
  // `file` names the input in messages; offsets in messages are base + position. Throws Error
  // E_JSON_SIZE at once if the text is longer than limits.max_bytes.
  JsonScanner(std::string_view text, std::string file, const JsonLimits& limits,
              std::size_t base = 0);

  // The next token. Error E_JSON (grammar), E_JSON_DEPTH, E_JSON_UTF8.
  JsonToken next();
  // Steps over the value whose first token was `first`.
  void skip(const JsonToken& first);
  int depth() const { return narrow<int>(stack_.size()); }
  // "byte 17"
  std::string place(std::size_t offset) const;

  [[noreturn]] void fail(std::string code, std::size_t offset, std::string expected,
                         std::string found) const;

 private:
  enum class Expect : std::uint8_t { kValue, kValueOrEnd, kKey, kKeyOrEnd, kCommaOrEnd, kDone };

  void skip_space();
  std::string here() const;
  JsonToken open(char bracket);
  JsonToken close(char bracket);
  JsonToken scalar(JsonToken token);
  JsonToken string(JsonKind kind);
  JsonToken number();
  JsonToken literal(std::string_view word, JsonKind kind);
  void escape();
  std::uint32_t hex4();
  void after_value();

  std::string_view text_;
  std::string file_;
  JsonLimits limits_;
  std::size_t base_;
  std::size_t at_ = 0;
  Expect expect_ = Expect::kValue;
  std::vector<bool> stack_;  // true: object
  std::string decoded_;
};

}  // namespace tessera
