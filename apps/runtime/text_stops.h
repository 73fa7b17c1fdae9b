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

// eos_token_id of the generation configuration, or of config.json: one id or several; else a token
// that is known to end texts. Error kModel, E_CAPTION_MODEL, if there is none.
std::vector<std::int32_t> read_stops(const std::filesystem::path& folder, const Json& generation,
                                     const Json& config, const TextTokenizer& tokenizer);

}  // namespace tessera
