// Components of tokenizers of pieces, whose spaces are written U+2581, as a tokenizer.json has them.
#pragma once

#include <string_view>

#include "engine/core/json.h"

namespace tessera {

inline constexpr std::string_view kPieceSpace = "\xE2\x96\x81";  // U+2581

// `kind`: "String" or "Regex".
Json replace_json(const char* kind, std::string_view pattern, std::string_view content);

// `scheme`: "first", "always" or "never".
Json metaspace_json(std::string_view scheme, bool split);

// Pieces back to a text; of a text that was given a space in front, that is taken away.
Json piece_decoder(bool strips);

}  // namespace tessera
