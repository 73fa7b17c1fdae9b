// Oniguruma (Ruby syntax) to PCRE2. The two agree on most of the language; this file rewrites what
// they read differently: \s \w \b \h \v and properties (Unicode 16 against 14, see
// unicode_tables.h), script names (PCRE2 means script extensions), {n,m}+ (possessive in PCRE2
// only), {,n}. ^ and $ stand at lines in both (PCRE2_MULTILINE). Anything else is refused.
#include <array>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/core/index.h"
#include "engine/core/utf8.h"
#include "tokenizers/text/regex.h"
#include "tokenizers/text/unicode_tables.h"

namespace tessera {

namespace {

constexpr std::string_view kSpaceItems =
    "\\x09-\\x0d\\x20\\x85\\xa0\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{"
    "3000}";
constexpr std::string_view kNotSpaceItems =
    "\\x00-\\x08\\x0e-\\x1f\\x21-\\x84\\x86-\\x9f\\xa1-\\x{167f}\\x{1681}-\\x{1fff}\\x{200b}-\\x{"
    "2027}"
    "\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}\\x{3001}-\\x{10ffff}";
constexpr std::string_view kHexItems = "0-9A-Fa-f";
constexpr std::array<std::string_view, 28> kCategories = {
    "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps",
    "Pe", "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Co"};
constexpr std::array<std::string_view, 6> kMajorCategories = {"L", "M", "N", "P", "S", "Z"};
constexpr std::array<std::string_view, 35> kScripts = {
    "Latin",    "Greek",      "Cyrillic",  "Armenian", "Hebrew",   "Arabic", "Syriac",
    "Thaana",   "Devanagari", "Bengali",   "Gurmukhi", "Gujarati", "Oriya",  "Tamil",
    "Telugu",   "Kannada",    "Malayalam", "Sinhala",  "Thai",     "Lao",    "Tibetan",
    "Myanmar",  "Georgian",   "Hangul",    "Ethiopic", "Cherokee", "Khmer",  "Mongolian",
    "Hiragana", "Katakana",   "Bopomofo",  "Han",      "Braille",  "Common", "Inherited"};

template <std::size_t N>
bool contains(const std::array<std::string_view, N>& list, std::string_view name) {
  for (std::string_view item : list) {
    if (item == name) return true;
  }
  return false;
}

std::string escaped_code(char32_t code) {
  std::array<char, 16> text{};
  std::snprintf(text.data(), text.size(), "\\x{%x}", static_cast<unsigned>(code));
  return text.data();
}

// A major category takes the rows of its two-letter categories.
void append_additions(std::string& out, std::string_view name) {
  for (const ClassRange& row : class_additions()) {
    const std::string_view row_name = row.name;
    const bool applies =
        row_name == name || (name.size() == 1 && row_name.size() == 2 && row_name[0] == name[0]);
    if (!applies) continue;
    out += escaped_code(row.first);
    if (row.last > row.first) out += "-" + escaped_code(row.last);
  }
}

std::optional<std::string> property_items(std::string_view name) {
  std::string out;
  if (contains(kCategories, name) || contains(kMajorCategories, name)) {
    out = "\\p{" + std::string(name) + "}";
  } else if (contains(kScripts, name)) {
    out = "\\p{sc:" + std::string(name) + "}";
  } else {
    return std::nullopt;
  }
  append_additions(out, name);
  return out;
}

class Translator {
 public:
  Translator(std::string_view pattern, const PatternPlace& place) : in_(pattern), place_(place) {}

  std::string run() {
    if (in_.substr(0, 4) == "(?i)") {
      at_ = 4;
      out_ = "(?i)";
    }
    while (at_ < in_.size()) step();
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(std::string found) const {
    throw Error({.kind = ErrorKind::kModel,
                 .code = "E_TOK_REGEX_FEATURE",
                 .file = place_.file,
                 .where = place_.path + ", byte " + std::to_string(at_) + " of the pattern",
                 .expected =
                     "literals, classes, \\p{category or script}, \\s \\d \\w \\h \\b, (?: (?= (?! "
                     "(?<= (?<! (?> (?i: groups, greedy, lazy or possessive repeats",
                 .found = std::move(found)});
  }

  bool starts(std::string_view prefix) const { return in_.substr(at_).starts_with(prefix); }

  void step() {
    const char c = in_[at_];
    if (c == '(') return open_group();
    if (c == ')') {
      if (!groups_.empty()) {
        atom_ = groups_.back();
        groups_.pop_back();
      }
      return copy(1);
    }
    if (c == '|' || c == '^' || c == '$' || c == '.') {
      atom_ = out_.size();
      return copy(1);
    }
    if (c == '*' || c == '+' || c == '?') return repeat();
    if (c == '{') return braces();
    atom_ = out_.size();
    if (c == '[') return char_class();
    if (c == '\\') return escape();
    copy(decode_utf8(in_, at_).length);
  }

  void copy(std::size_t count) {
    out_ += in_.substr(at_, count);
    at_ += count;
  }

  void open_group() {
    groups_.push_back(out_.size());
    if (!starts("(?") && !starts("(*")) return copy(1);
    for (std::string_view opening : {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:", "(?-i:"}) {
      if (starts(opening)) return copy(opening.size());
    }
    refuse("\"" + std::string(in_.substr(at_, 4)) + "\"");
  }

  // * + ? with their lazy or possessive mark, which both engines read alike.
  void repeat() {
    copy(1);
    if (at_ < in_.size() && (in_[at_] == '?' || in_[at_] == '+')) copy(1);
  }

  // {n} {n,} {n,m} {,m}; any other brace is a literal in both engines.
  void braces() {
    std::size_t end = at_ + 1;
    std::string low, high;
    bool comma = false;
    for (; end < in_.size() && in_[end] != '}'; ++end) {
      const char c = in_[end];
      if (c == ',' && !comma) {
        comma = true;
      } else if (c >= '0' && c <= '9') {
        (comma ? high : low).push_back(c);
      } else {
        break;
      }
    }
    if (end >= in_.size() || in_[end] != '}' || (low.empty() && high.empty())) {
      atom_ = out_.size();
      return copy(1);
    }
    out_ += "{" + (low.empty() ? "0" : low) + (comma ? "," + high : "") + "}";
    at_ = end + 1;
    if (at_ >= in_.size()) return;
    if (in_[at_] == '+') {  // in Ruby's syntax a repeat of the repeat
      out_.insert(atom_, "(?:");
      out_ += ")+";
      ++at_;
    } else if (in_[at_] == '?') {
      if (!comma) refuse("{n}?, which Oniguruma reads as an optional repeat");
      copy(1);
    }
  }

  // The two hex digits of \xHH, or the digits of \x{H..} and \uHHHH.
  char32_t hex_escape() {
    const std::size_t begin = at_;
    const bool braced = starts("\\x{");
    const bool wide = in_[at_ + 1] == 'u';
    at_ += braced ? 3 : 2;
    char32_t code = 0;
    std::size_t digits = 0;
    const std::size_t most = braced ? 8 : wide ? 4 : 2;
    for (; at_ < in_.size() && digits < most; ++digits, ++at_) {
      const char c = in_[at_];
      const int value = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (value < 0) break;
      code = code * 16 + static_cast<char32_t>(value);
    }
    const bool closed = !braced || (at_ < in_.size() && in_[at_] == '}');
    const bool whole = braced ? digits > 0 : digits == most;
    const bool raw_byte = !braced && !wide && code > 0x7f;
    if (!closed || !whole || raw_byte || code > 0x10ffff) {
      at_ = begin;
      refuse("\"" + std::string(in_.substr(at_, 12)) + "\"");
    }
    if (braced) ++at_;
    return code;
  }

  // Items for the inside of a class, or nullopt for an escape that names no set.
  std::optional<std::string> set_items(bool& negated) {
    const char c = at_ + 1 < in_.size() ? in_[at_ + 1] : '\0';
    negated = c == 'S' || c == 'D' || c == 'W' || c == 'H' || c == 'P';
    switch (c) {
      case 's':
      case 'S':
        at_ += 2;
        return std::string(kSpaceItems);
      case 'd':
      case 'D':
        at_ += 2;
        return property_items("Nd");
      case 'w':
      case 'W':
        at_ += 2;
        return class_items("onig-word");
      case 'h':
      case 'H':
        at_ += 2;
        return std::string(kHexItems);
      case 'p':
      case 'P':
        return named_items(negated);
      default:
        return std::nullopt;
    }
  }

  std::string named_items(bool& negated) {
    const std::size_t close = in_.find('}', at_);
    if (at_ + 2 >= in_.size() || in_[at_ + 2] != '{' || close == std::string_view::npos) {
      refuse("\\p without {name}");
    }
    std::string_view name = in_.substr(at_ + 3, close - at_ - 3);
    if (name.starts_with("^")) {
      negated = !negated;
      name.remove_prefix(1);
    }
    const auto items = property_items(name);
    if (!items) refuse("the property \"" + std::string(name.substr(0, 40)) + "\"");
    at_ = close + 1;
    return *items;
  }

  // An escape for one character, as PCRE2 text; nullopt if it is not one.
  std::optional<std::string> character_escape() {
    const char c = at_ + 1 < in_.size() ? in_[at_ + 1] : '\0';
    if (c == 'x' || c == 'u') return escaped_code(hex_escape());
    std::string out;
    switch (c) {
      case 'n':
        out = "\\n";
        break;
      case 'r':
        out = "\\r";
        break;
      case 't':
        out = "\\t";
        break;
      case 'f':
        out = "\\f";
        break;
      case 'v':
        out = "\\x0b";
        break;
      case 'a':
        out = "\\a";
        break;
      case 'e':
        out = "\\e";
        break;
      default: {
        const auto byte = byte_of(c);
        const bool word =
            (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
        if (c == '\0' || word) return std::nullopt;
        const std::size_t length = byte < 0x80 ? 1 : decode_utf8(in_, at_ + 1).length;
        out = (byte < 0x80 ? "\\" : "") + std::string(in_.substr(at_ + 1, length));
        at_ += 1 + length;
        return out;
      }
    }
    at_ += 2;
    return out;
  }

  void escape() {
    bool negated = false;
    if (const auto items = set_items(negated)) {
      out_ += (negated ? "[^" : "[") + *items + "]";
      return;
    }
    const char c = at_ + 1 < in_.size() ? in_[at_ + 1] : '\0';
    if (c == 'A' || c == 'z' || c == 'Z') return copy(2);
    if (c == 'b' || c == 'B') {
      const std::string word = "[" + class_items("onig-word") + "]";
      out_ += c == 'b' ? "(?:(?<=" + word + ")(?!" + word + ")|(?<!" + word + ")(?=" + word + "))"
                       : "(?:(?<=" + word + ")(?=" + word + ")|(?<!" + word + ")(?!" + word + "))";
      at_ += 2;
      return;
    }
    const auto character = character_escape();
    if (!character) refuse("the escape \"" + std::string(in_.substr(at_, 2)) + "\"");
    out_ += *character;
  }

  bool next_is_set() const {
    return at_ + 2 < in_.size() && in_[at_ + 1] == '\\' &&
           std::string_view("sSdDwWhHpP").find(in_[at_ + 2]) != std::string_view::npos;
  }

  void char_class() {
    copy(1);
    if (at_ < in_.size() && in_[at_] == '^') copy(1);
    if (at_ < in_.size() && in_[at_] == ']') refuse("a class that begins with ]");
    while (at_ < in_.size() && in_[at_] != ']') {
      const char c = in_[at_];
      if (c == '[') refuse("a class or [:name:] inside a class");
      if (starts("&&")) refuse("&& inside a class");
      if (c == '-' && next_is_set()) {  // no range can end in a set: a literal
        out_ += "\\-";
        ++at_;
        continue;
      }
      if (c != '\\') {
        copy(decode_utf8(in_, at_).length);
        continue;
      }
      bool negated = false;
      const std::size_t begin = at_;
      if (const auto items = set_items(negated)) {
        const bool not_space = negated && in_[begin + 1] == 'S';
        if (negated && !not_space) {
          at_ = begin;
          refuse("the negated set \"" + std::string(in_.substr(at_, 2)) + "\" inside a class");
        }
        out_ += not_space ? std::string(kNotSpaceItems) : *items;
        if (starts("-")) {  // nor begin in one
          out_ += "\\-";
          ++at_;
        }
        continue;
      }
      const auto character = character_escape();
      if (!character)
        refuse("the escape \"" + std::string(in_.substr(at_, 2)) + "\" inside a class");
      out_ += *character;
    }
    if (at_ < in_.size()) copy(1);
  }

  std::string_view in_;
  const PatternPlace& place_;
  std::size_t at_ = 0;
  std::string out_;
  std::size_t atom_ = 0;             // where in out_ the last atom begins
  std::vector<std::size_t> groups_;  // where in out_ the open groups begin
};

}  // namespace

std::string class_items(std::string_view name) {
  if (name == "space") return std::string(kSpaceItems);
  std::string out = name == "rust-number" ? "\\p{N}" : "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";
  append_additions(out, name);
  return out;
}

std::string translate_regex(std::string_view pattern, const PatternPlace& place) {
  return Translator(pattern, place).run();
}

}  // namespace tessera
