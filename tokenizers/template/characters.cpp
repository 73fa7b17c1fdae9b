#include "tokenizers/template/characters.h"

#include <utf8proc.h>

#include <string>

#include "engine/core/utf8.h"
#include "tokenizers/template/case_table.h"

namespace tessera::jinja {

namespace {

utf8proc_int32_t code_of(char32_t c) { return static_cast<utf8proc_int32_t>(c); }

utf8proc_category_t category_of(char32_t c) { return utf8proc_category(code_of(c)); }

}  // namespace

bool is_space(char32_t c) {
  return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
         c == 0x3000;
}

bool is_line_end(char32_t c) {
  return (c >= 10 && c <= 13) || (c >= 28 && c <= 30) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

bool is_printable(char32_t c) {
  if (c == ' ') return true;
  switch (category_of(c)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    default:
      return true;
  }
}

bool is_alpha(char32_t c) {
  const utf8proc_category_t category = category_of(c);
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool is_decimal(char32_t c) { return category_of(c) == UTF8PROC_CATEGORY_ND; }

bool is_numeric(char32_t c) {
  const utf8proc_category_t category = category_of(c);
  return category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
}

bool is_upper(char32_t c) { return utf8proc_isupper(code_of(c)) != 0; }

bool is_lower(char32_t c) { return utf8proc_islower(code_of(c)) != 0; }

bool is_title(char32_t c) { return category_of(c) == UTF8PROC_CATEGORY_LT; }

bool is_cased(char32_t c) { return is_upper(c) || is_lower(c) || is_title(c); }

std::string_view map_case(char32_t c, CaseMapping mapping, char (&buffer)[16]) {
  std::string out;
  const SpecialCase* special = mapping == CaseMapping::kLower ? nullptr : special_case(c);
  if (special != nullptr) {
    out = mapping == CaseMapping::kUpper ? special->upper : special->title;
  } else if (mapping == CaseMapping::kLower && c == 0x130) {
    out = "i\xcc\x87";
  } else {
    const auto mapped = mapping == CaseMapping::kUpper   ? utf8proc_toupper(code_of(c))
                        : mapping == CaseMapping::kLower ? utf8proc_tolower(code_of(c))
                                                         : utf8proc_totitle(code_of(c));
    append_utf8(out, static_cast<char32_t>(mapped));
  }
  return {buffer, out.copy(buffer, sizeof buffer)};
}

}  // namespace tessera::jinja
