// What ends a text: the ids that a model's folder names.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

#include "engine/core/json.h"
#include "engine/families/language.h"
#include "tokenizers/text/tokenizer.h"

namespace tessera {

inline std::filesystem::path generation_path(const std::filesystem::path& folder) {
  return folder / "generation_config.json";
}

// generation_config.json; null where the folder has none. Error kModel.
Json read_generation(const std::filesystem::path& folder);

// What ends texts where no file names an id: a token, if it has one, else an id, if that is not
// kNoEnd.
struct UnnamedEnd {
  std::string_view token;
  std::int32_t id = kNoEnd;
};

// The ids that end a text: eos_token_id of generation_config.json, one or several, none where the
// file has no such key, as in transformers. Without the file that of config.json or of its text
// half; a null of the latter means none, and of neither `unnamed`. Error kModel, E_CAPTION_MODEL:
// what is no id, or a token that the tokenizer lacks.
std::vector<std::int32_t> read_stops(const std::filesystem::path& folder, const Json& generation,
                                     const Json& config, const TextTokenizer& tokenizer,
                                     const UnnamedEnd& unnamed);

}  // namespace tessera
