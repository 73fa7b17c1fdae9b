// Job files line by line, whatever their length: a line that is too long is stepped over, never
// held. Places in messages are "line L, column C", in characters, from 1.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "engine/core/error.h"
#include "engine/core/file_stream.h"

namespace tessera {

class LineReader {
 public:
  static constexpr std::size_t kMaxLineBytes = std::size_t{1} << 20;
  enum class Got : std::uint8_t { kLine, kTooLong, kEnd };

  explicit LineReader(ByteSource& source) : source_(source) {}

  // The next line without its '\n' (a '\r' before it stays). kTooLong: more than kMaxLineBytes; it
  // was stepped over and `line` is empty.
  Got next(std::string& line);
  // Of the line that next() gave last, from 1.
  std::uint64_t number() const { return line_; }

 private:
  ByteSource& source_;
  std::string buffer_;
  std::size_t at_ = 0;
  std::uint64_t line_ = 0;
};

// One line being read: what its errors have in common.
struct TextLine {
  std::string_view text;
  const std::string& file;
  std::uint64_t number;

  // "line 3, column 7" of the character that begins at byte `offset` of the text.
  std::string place(std::size_t offset) const;
  // Error kUsage at that place.
  [[noreturn]] void fail(const char* code, std::size_t offset, std::string expected,
                         std::string found) const;
  // The same error with its "byte N", as the JSON scanner says it, put as line and column.
  [[noreturn]] void fail_at_byte(const Error& error) const;
};

// Letters, digits, '.', '_' and '-', 1 to 120 of them, no dot first.
bool is_item_id(std::string_view id);
// What is_item_id() wants, for messages.
inline constexpr const char* kItemIdRule =
    "an id of 1 to 120 letters, digits, '.', '_' and '-' that begins with no dot";

}  // namespace tessera
