// Changes one value or member of a JSON document and writes it back whole.
#pragma once

#include <string>
#include <string_view>

#include "tests/fuzz/targets/fuzz_support.h"

namespace tessera::fuzz {

// Empty if the text is no JSON that a permissive parser can read.
std::string mutate_json(std::string_view text, Choice& choice);

}  // namespace tessera::fuzz
