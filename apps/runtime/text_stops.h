// What ends a text: the ids that a model's folder names.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "engine/core/json.h"
#include "tokenizers/text/tokenizer.h"

namespace tessera {

inline std::filesystem::path generation_path(const std::filesystem::path& folder) {
  return folder / "generation_config.json";
}

// generation_config.json; null where the folder has none. Error kModel.
Json read_generation(const std::filesystem::path& folder);

// The ids that end a text: eos_token_id of generation_config.json, one or several, none where the
// file has no such key, as in transformers. Without the file that of config.json, else a token that
// is known to end texts. Error kModel, E_CAPTION_MODEL, if there is none.
std::vector<std::int32_t> read_stops(const std::filesystem::path& folder, const Json& generation,
                                     const Json& config, const TextTokenizer& tokenizer);

}  // namespace tessera
