// The image tokens of Chameleon's vocabulary, and its image tokenizer by the Hugging Face port's
// configuration.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "engine/families/family.h"

namespace tessera {

// Rows of table and head that are the codes, in their order; neighbours in one range.
// `names` is what `map` reads. Error kModel: a code without a token, or two.
std::vector<RowRange> chameleon_code_rows(const JsonReader& map, const Json& names,
                                          std::int64_t codes, std::int64_t vocab);

struct ChameleonTokenizer {
  VqSpec vq;
  std::int64_t resolution = 0;  // pixels of a side
};

// Error kModel naming the key.
ChameleonTokenizer parse_chameleon_tokenizer(const JsonReader& config);

}  // namespace tessera
