// A GGUF model's keys as the config.json that its folder would have.
#pragma once

#include <string>

#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/gguf.h"
#include "engine/core/json.h"
#include "engine/families/folder_files.h"

namespace tessera {

// `head`: the keys of the model's first file; `weights`: its tensors, which say whether there are
// biases, a head and divisors of rotary frequencies. Every key of the architecture is read,
// checked, known to change nothing, or refused; `account`, unless null, gets a row for each. Error
// kModel naming file and key or tensor: E_GGUF_MODEL; E_GGUF_ARCHITECTURE for one that is not
// computed here, with what is missing.
Json gguf_config(const GgufFile& head, const Checkpoint& weights, const std::string& file,
                 FolderAccount* account = nullptr);

// What an architecture lacks to be computed here: empty = nothing.
std::string missing_of_architecture(std::string_view name);

}  // namespace tessera
