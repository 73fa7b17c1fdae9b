// Lines of job files and the places in them.
#include "apps/captions/line_reader.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "engine/core/utf8.h"

namespace tessera {

LineReader::Got LineReader::next(std::string& line) {
  static constexpr std::size_t kPiece = std::size_t{64} << 10;
  line.clear();
  bool too_long = false;
  bool any = false;  // a byte of this line was seen, if only its end
  while (true) {
    if (at_ == buffer_.size()) {
      buffer_.resize(kPiece);
      buffer_.resize(source_.read(buffer_.data(), buffer_.size()));
      at_ = 0;
      if (buffer_.empty()) break;
    }
    any = true;
    const std::size_t end = std::min(buffer_.find('\n', at_), buffer_.size());
    if (!too_long) line.append(buffer_, at_, end - at_);
    too_long = too_long || line.size() > kMaxLineBytes;
    if (too_long) line.clear();
    at_ = end;
    if (at_ == buffer_.size()) continue;
    ++at_;
    break;
  }
  if (!any) return Got::kEnd;
  ++line_;
  return too_long ? Got::kTooLong : Got::kLine;
}

std::string TextLine::place(std::size_t offset) const {
  std::size_t column = 1;
  for (std::size_t at = 0; at < std::min(offset, text.size()); ++column) {
    at += decode_utf8(text, at).length;
  }
  return "line " + std::to_string(number) + ", column " + std::to_string(column);
}

void TextLine::fail(const char* code, std::size_t offset, std::string expected,
                    std::string found) const {
  throw Error({.kind = ErrorKind::kUsage,
               .code = code,
               .file = file,
               .where = place(offset),
               .expected = std::move(expected),
               .found = std::move(found)});
}

void TextLine::fail_at_byte(const Error& error) const {
  static constexpr std::string_view kByte = "byte ";
  ErrorInfo info = error.info();
  if (info.where.starts_with(kByte)) {
    std::size_t offset = 0;
    std::from_chars(info.where.data() + kByte.size(), info.where.data() + info.where.size(),
                    offset);
    info.where = place(offset);
  }
  throw Error(std::move(info));
}

bool is_item_id(std::string_view id) {
  return !id.empty() && id.size() <= 120 && id.front() != '.' &&
         std::all_of(id.begin(), id.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '.' || c == '_' || c == '-';
         });
}

}  // namespace tessera
