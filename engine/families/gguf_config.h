// A GGUF model's keys as the config.json that its folder would have.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/gguf.h"
#include "engine/checkpoint/gguf_write.h"
#include "engine/core/json.h"
#include "engine/families/folder_files.h"
#include "engine/families/text_model.h"

namespace tessera {

// What the model is opened for: texts alone, or as half of a pair with an image encoder.
enum class GgufUse : std::uint8_t { kTexts, kPair };

// `head`: the keys of the model's first file; `weights`: its tensors, which say whether there are
// biases, a head and divisors of rotary frequencies. Every key of the architecture is read,
// checked, known to change nothing, or refused; `account` gets a row for each. Error kModel naming
// file and key or tensor: E_GGUF_MODEL; E_GGUF_ARCHITECTURE for one that is not computed here, with
// what is missing.
Json gguf_config(const GgufFile& head, const Checkpoint& weights, const std::string& file,
                 GgufUse use, FolderAccount& account);

// What an architecture lacks to be computed here: empty = nothing.
std::string missing_of_architecture(std::string_view name);

// The tensor of a rotary embedding's divisors, one a pair of a head.
inline constexpr std::string_view kGgufFrequencies = "rope_freqs.weight";

struct GgufConfigKeys {
  std::string architecture;       // "llama" or "qwen2"
  std::vector<float> divisors;    // of kGgufFrequencies; empty = none
  std::vector<std::string> said;  // what the file says otherwise than the folder, a line each
};
// The same backwards: puts the keys from which gguf_config() makes this model. Error kModel,
// E_GGUF_MODEL, naming config.json and the key, for what such files have no key for.
GgufConfigKeys write_gguf_config(const TextSpec& text, GgufKeys& keys);

}  // namespace tessera
