// How foreign text is written: names as stable text, captions without control characters, JSON and
// CSV lines that neither a terminal nor a spreadsheet takes for commands, names in natural order.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/core/json.h"
#include "engine/core/utf8.h"

namespace tessera {

// "img2" before "img10": runs of digits compare as numbers, letters without case; ties by bytes,
// so that the order is total.
bool natural_less(std::string_view a, std::string_view b);

// A file name or path as text that stands in JSON and in journals. Printable UTF-8 stands for
// itself; anything else becomes "raw:" and percent escapes, so that no two names meet.
std::string stable_text(std::string_view name);
std::string name_of_stable(std::string_view text);  // the other way

// An id that a list gave to an image, kept apart from ids that are paths: those never begin with
// two slashes. shown_id() is what people and programs are shown of any id.
std::string listed_id(std::string_view given);
std::string shown_id(std::string_view id);

// Valid UTF-8 without control characters, bidi marks or line breaks.
bool is_printable(std::string_view text);

// A caption as it is stored: line breaks and tabs stay, other control characters become spaces,
// bidi marks and zero-width signs go, white space at both ends goes.
std::string clean_caption(std::string_view text);

// One line of JSON without its line break. C1 controls, DEL, bidi marks and line separators are
// written as \uNNNN: legal JSON, and harmless on a terminal. Invalid UTF-8 becomes U+FFFD.
std::string json_line(const Json& value);

// One row of RFC 4180 with CR LF. A text cell that begins with = + - @, a tab or a carriage return
// gets a leading apostrophe when `formula_safe`; numbers are never touched.
struct CsvCell {
  std::string text;
  bool is_text = true;
};
std::string csv_row(std::span<const CsvCell> cells, bool formula_safe = true);

// 64-bit FNV-1a: notices accidents, keeps out nobody.
class ContentHash {
 public:
  void add(std::string_view bytes);
  std::string hex() const;  // 16 digits

 private:
  std::uint64_t state_ = 0xcbf29ce484222325;
};
std::string content_hash(std::string_view bytes);

// CRC-32C (Castagnoli, reflected polynomial 0x82F63B78).
std::uint32_t crc32c(std::string_view bytes);

}  // namespace tessera
