// The scanner is a small state machine: what may come next is in expect_, what encloses it in
// stack_.
#include "engine/core/json_scan.h"

#include <utility>

#include "engine/core/index.h"
#include "engine/core/utf8.h"

namespace tessera {

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

std::string_view json_kind_name(JsonKind kind) {
  switch (kind) {
    case JsonKind::kObjectBegin:
      return "an object";
    case JsonKind::kObjectEnd:
      return "the end of an object";
    case JsonKind::kArrayBegin:
      return "an array";
    case JsonKind::kArrayEnd:
      return "the end of an array";
    case JsonKind::kKey:
      return "a key";
    case JsonKind::kString:
      return "a string";
    case JsonKind::kNumber:
      return "a number";
    case JsonKind::kTrue:
      return "true";
    case JsonKind::kFalse:
      return "false";
    case JsonKind::kNull:
      return "null";
    case JsonKind::kEnd:
      return "the end of the text";
  }
  return "?";
}

JsonScanner::JsonScanner(std::string_view text, std::string file, const JsonLimits& limits,
                         std::size_t base)
    : text_(text), file_(std::move(file)), limits_(limits), base_(base) {
  if (text.size() > limits.max_bytes) {
    throw Error({.kind = limits.kind,
                 .code = "E_JSON_SIZE",
                 .file = file_,
                 .expected = "at most " + std::to_string(limits.max_bytes) + " bytes of JSON",
                 .found = std::to_string(text.size())});
  }
}

std::string JsonScanner::place(std::size_t offset) const {
  return "byte " + std::to_string(base_ + offset);
}

void JsonScanner::fail(std::string code, std::size_t offset, std::string expected,
                       std::string found) const {
  throw Error({.kind = limits_.kind,
               .code = std::move(code),
               .file = file_,
               .where = place(offset),
               .expected = std::move(expected),
               .found = std::move(found)});
}

void JsonScanner::skip_space() {
  while (at_ < text_.size() &&
         (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n' || text_[at_] == '\r')) {
    ++at_;
  }
}

// What stands at the present place, for a message.
std::string JsonScanner::here() const {
  if (at_ >= text_.size()) return "the end of the text";
  if (text_.substr(at_, 3) == "\xef\xbb\xbf") return "a byte order mark";
  return "'" + std::string(text_.substr(at_, decode_utf8(text_, at_).length)) + "'";
}

void JsonScanner::after_value() { expect_ = stack_.empty() ? Expect::kDone : Expect::kCommaOrEnd; }

JsonToken JsonScanner::next() {
  skip_space();
  if (expect_ == Expect::kDone) {
    if (at_ < text_.size()) fail("E_JSON", at_, "nothing after the value", here());
    return {JsonKind::kEnd, at_, {}};
  }
  if (at_ >= text_.size()) fail("E_JSON", at_, "more JSON", here());
  char c = text_[at_];
  if (expect_ == Expect::kCommaOrEnd) {
    if (c == '}' || c == ']') return close(c);
    if (c != ',') fail("E_JSON", at_, stack_.back() ? "',' or '}'" : "',' or ']'", here());
    ++at_;
    skip_space();
    if (at_ >= text_.size()) fail("E_JSON", at_, "more JSON", here());
    c = text_[at_];
    expect_ = stack_.back() ? Expect::kKey : Expect::kValue;
  }
  if (expect_ == Expect::kKey || expect_ == Expect::kKeyOrEnd) {
    if (c == '}' && expect_ == Expect::kKeyOrEnd) return close(c);
    if (c != '"') fail("E_JSON", at_, "a key in double quotes", here());
    const JsonToken key = string(JsonKind::kKey);
    skip_space();
    if (at_ >= text_.size() || text_[at_] != ':') fail("E_JSON", at_, "':'", here());
    ++at_;
    expect_ = Expect::kValue;
    return key;
  }
  if (c == ']' && expect_ == Expect::kValueOrEnd) return close(c);
  switch (c) {
    case '{':
    case '[':
      return open(c);
    case '"':
      return scalar(string(JsonKind::kString));
    case 't':
      return scalar(literal("true", JsonKind::kTrue));
    case 'f':
      return scalar(literal("false", JsonKind::kFalse));
    case 'n':
      return scalar(literal("null", JsonKind::kNull));
    default:
      return scalar(number());
  }
}

void JsonScanner::skip(const JsonToken& first) {
  if (first.kind != JsonKind::kObjectBegin && first.kind != JsonKind::kArrayBegin) return;
  const int outside = depth() - 1;
  while (depth() > outside) next();
}

JsonToken JsonScanner::open(char bracket) {
  if (depth() >= limits_.max_depth) {
    fail("E_JSON_DEPTH", at_, "nesting of at most " + std::to_string(limits_.max_depth),
         "one level more");
  }
  stack_.push_back(bracket == '{');
  expect_ = bracket == '{' ? Expect::kKeyOrEnd : Expect::kValueOrEnd;
  return {bracket == '{' ? JsonKind::kObjectBegin : JsonKind::kArrayBegin, at_++, {}};
}

JsonToken JsonScanner::close(char bracket) {
  if (stack_.back() != (bracket == '}')) {
    fail("E_JSON", at_, stack_.back() ? "'}'" : "']'", here());
  }
  stack_.pop_back();
  after_value();
  return {bracket == '}' ? JsonKind::kObjectEnd : JsonKind::kArrayEnd, at_++, {}};
}

JsonToken JsonScanner::scalar(JsonToken token) {
  after_value();
  return token;
}

JsonToken JsonScanner::literal(std::string_view word, JsonKind kind) {
  if (text_.substr(at_, word.size()) != word) fail("E_JSON", at_, "a JSON value", here());
  const std::size_t start = at_;
  at_ += word.size();
  return {kind, start, {}};
}

JsonToken JsonScanner::number() {
  const std::size_t start = at_;
  const auto digits = [&] {
    if (at_ >= text_.size() || !is_digit(text_[at_])) fail("E_JSON", at_, "a digit", here());
    while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
  };
  const auto take = [&](char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  };
  if (text_[at_] != '-' && !is_digit(text_[at_])) fail("E_JSON", at_, "a JSON value", here());
  take('-');
  if (take('0')) {
    if (at_ < text_.size() && is_digit(text_[at_])) {
      fail("E_JSON", at_, "no digit after a leading zero", here());
    }
  } else {
    digits();
  }
  if (take('.')) digits();
  if (take('e') || take('E')) {
    if (!take('+')) take('-');
    digits();
  }
  return {JsonKind::kNumber, start, text_.substr(start, at_ - start)};
}

JsonToken JsonScanner::string(JsonKind kind) {
  const std::size_t start = at_++;
  const std::size_t content = at_;
  bool plain = true;  // no escape so far: the result may borrow from the text
  decoded_.clear();
  while (true) {
    if (at_ >= text_.size()) fail("E_JSON", start, "a closing '\"'", "the end of the text");
    const unsigned char c = byte_of(text_[at_]);
    if (c == '"') break;
    if (c < 0x20) {
      fail("E_JSON", at_, "control characters in strings as escapes",
           "byte " + std::to_string(unsigned{c}));
    }
    if (c == '\\') {
      if (plain) decoded_.assign(text_.substr(content, at_ - content));
      plain = false;
      escape();
      continue;
    }
    const Utf8Char unit = c < 0x80 ? Utf8Char{c, 1, true} : decode_utf8(text_, at_);
    if (!unit.valid) {
      fail("E_JSON_UTF8", at_, "valid UTF-8", "byte " + std::to_string(unsigned{c}));
    }
    if (!plain) decoded_.append(text_.substr(at_, unit.length));
    at_ += unit.length;
  }
  const std::string_view value =
      plain ? text_.substr(content, at_ - content) : std::string_view(decoded_);
  ++at_;
  return {kind, start, value};
}

std::uint32_t JsonScanner::hex4() {
  std::uint32_t value = 0;
  for (int i = 0; i < 4; ++i, ++at_) {
    const char c = at_ < text_.size() ? text_[at_] : '\0';
    if (is_digit(c)) {
      value = value * 16 + narrow<std::uint32_t>(c - '0');
    } else if ((c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F')) {
      value = value * 16 + narrow<std::uint32_t>((c | 0x20) - 'a' + 10);
    } else {
      fail("E_JSON", at_, "four hexadecimal digits", here());
    }
  }
  return value;
}

void JsonScanner::escape() {
  static constexpr std::string_view kFrom = "\"\\/bfnrt";
  static constexpr std::string_view kTo = "\"\\/\b\f\n\r\t";
  const std::size_t start = at_++;
  const char c = at_ < text_.size() ? text_[at_] : '\0';
  if (const std::size_t i = kFrom.find(c); i != std::string_view::npos) {
    decoded_ += kTo[i];
    ++at_;
    return;
  }
  if (c != 'u') fail("E_JSON", start, "an escape of JSON", "'\\' and " + here());
  ++at_;
  char32_t code = hex4();
  if (code >= 0xd800 && code < 0xdc00 && text_.substr(at_, 2) == "\\u") {
    at_ += 2;
    const std::uint32_t low = hex4();
    if (low < 0xdc00 || low > 0xdfff) {
      fail("E_JSON_UTF8", start, "a pair of surrogates", "the first one alone");
    }
    code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
  } else if (code >= 0xd800 && code <= 0xdfff) {
    fail("E_JSON_UTF8", start, "a pair of surrogates", "one alone");
  }
  append_utf8(decoded_, code);
}

}  // namespace tessera
