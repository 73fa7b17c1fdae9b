// A language model and its image encoder in two GGUF files, as one model that describes images.
#pragma once

#include <filesystem>
#include <string>

#include "engine/families/folder_files.h"
#include "engine/families/open_model.h"

namespace tessera {

// Opened and checked tensor by tensor; no weights are read, but for copies of patches and norms
// that stand otherwise in these files. `account` gets a row for each key of the encoder's file, and
// for those of the language model's that say what it is. Error kModel naming file, key or tensor,
// expected and found: E_GGUF_PAIR for files that do not fit each other, an encoder of a kind that
// is not computed here, or two of one kind; E_GGUF_*, E_TENSORS.
OpenedModel open_gguf_pair(const std::filesystem::path& model,
                           const std::filesystem::path& projector, FolderAccount& account);

// Error kModel (E_GGUF_PAIR) for an image encoder in the place of a language model.
void check_gguf_model(const std::filesystem::path& model);

// "mlp, qwen2vl_merger, ...": the kinds of projectors that are computed here.
std::string gguf_projector_types();

}  // namespace tessera
