#pragma once

#include <string_view>

namespace tessera::jinja {

struct SpecialCase {
  char32_t code;
  std::string_view upper, title;  // UTF-8
};

// Null for a character with simple mappings.
const SpecialCase* special_case(char32_t c);

}  // namespace tessera::jinja
