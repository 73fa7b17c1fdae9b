// See character_classes.h.
#include "tokenizers/text/character_classes.h"

#include <utf8proc.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "engine/core/index.h"
#include "engine/core/utf8.h"
#include "tokenizers/text/unicode_tables.h"

namespace tessera {

namespace {

using Ranges = std::vector<std::pair<char32_t, char32_t>>;

const std::map<std::string_view, Ranges>& tables() {
  static const std::map<std::string_view, Ranges> all = [] {
    std::map<std::string_view, Ranges> out;
    for (const ClassRange& row : class_additions()) out[row.name].emplace_back(row.first, row.last);
    for (auto& [name, ranges] : out) std::sort(ranges.begin(), ranges.end());
    return out;
  }();
  return all;
}

utf8proc_category_t category(char32_t code) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code));
}

// utf8proc is too old to know these: they join what is before them like any other mark.
utf8proc_int32_t break_class_of(char32_t code) {
  return narrow<utf8proc_int32_t>(in_table("grapheme-joins", code) ? 0x301 : code);
}

}  // namespace

bool in_table(std::string_view name, char32_t code) {
  const auto table = tables().find(name);
  if (table == tables().end()) return false;
  const Ranges& ranges = table->second;
  const auto after =
      std::upper_bound(ranges.begin(), ranges.end(), code,
                       [](char32_t c, const auto& range) { return c < range.first; });
  return after != ranges.begin() && code <= std::prev(after)->second;
}

bool is_punctuation(char32_t code) {
  if (code < 0x80) {
    return (code >= 0x21 && code <= 0x2f) || (code >= 0x3a && code <= 0x40) ||
           (code >= 0x5b && code <= 0x60) || (code >= 0x7b && code <= 0x7e);
  }
  const auto c = category(code);
  const bool here = c >= UTF8PROC_CATEGORY_PC && c <= UTF8PROC_CATEGORY_PO;
  return (here && !in_table("punctuation-not", code)) || in_table("punctuation", code);
}

bool is_mark(char32_t code) {
  const auto c = category(code);
  const bool here = c >= UTF8PROC_CATEGORY_MN && c <= UTF8PROC_CATEGORY_ME;
  return (here && !in_table("mark-not", code)) || in_table("mark", code);
}

bool is_nonspacing_mark(char32_t code) {
  const bool here = category(code) == UTF8PROC_CATEGORY_MN;
  return (here && !in_table("nonspacing-mark-not", code)) || in_table("nonspacing-mark", code);
}

bool is_bert_control(char32_t code) {
  if (code == '\t' || code == '\n' || code == '\r') return false;
  if (code == 0 || code == 0xfffd) return true;
  const auto c = category(code);
  const bool here =
      c == UTF8PROC_CATEGORY_CC || c == UTF8PROC_CATEGORY_CF || c == UTF8PROC_CATEGORY_CO;
  return here && !in_table("bert-control-not", code);
}

bool is_chinese(char32_t code) {
  return (code >= 0x3400 && code <= 0x4dbf) || (code >= 0x4e00 && code <= 0x9fff) ||
         (code >= 0xf900 && code <= 0xfaff) || (code >= 0x20000 && code <= 0x2a6df) ||
         (code >= 0x2a700 && code <= 0x2b81f) || (code >= 0x2b920 && code <= 0x2ceaf) ||
         (code >= 0x2f800 && code <= 0x2fa1f);
}

std::size_t grapheme_length(std::string_view text, std::size_t at) {
  Utf8Char c = decode_utf8(text, at);
  std::size_t end = at + c.length;
  utf8proc_int32_t state = 0;
  while (end < text.size()) {
    const Utf8Char next = decode_utf8(text, end);
    if (utf8proc_grapheme_break_stateful(break_class_of(c.code), break_class_of(next.code), &state))
      break;
    end += next.length;
    c = next;
  }
  return end - at;
}

}  // namespace tessera
