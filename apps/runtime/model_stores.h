// GGUF models that other programs keep on this machine, by the names that those programs give them:
// the store of Ollama, the folder of LM Studio, a folder of files. Nothing is opened but manifests.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "engine/core/error.h"

namespace tessera {

struct StoredModel {
  std::string name;                  // "llama3.2:1b", "publisher/repo/file.gguf"
  std::vector<std::string> aliases;  // other names that mean it, unless another has them too
  std::filesystem::path path;        // the file, the first of several parts
  std::filesystem::path projector;   // the file of its image encoder; empty = none
  std::vector<std::string> notes;    // what of the store's entry is not followed, a line each
  std::optional<ErrorInfo> problem;  // why it cannot be opened
};

// HF_HUB_CACHE, else $HF_HOME/hub, else ~/.cache/huggingface/hub.
std::filesystem::path hub_cache_folder();
// OLLAMA_MODELS, else ~/.ollama/models and the place of the system's service; those that exist.
std::vector<std::filesystem::path> ollama_folders();
// ~/.lmstudio/models and ~/.cache/lm-studio/models; those that exist.
std::vector<std::filesystem::path> lm_studio_folders();

// Every manifest of a store, by path. A manifest, blob or link that cannot be used is the problem
// of its entry (E_OLLAMA_MANIFEST, E_OLLAMA_BLOB, E_MODEL_LINK, E_JSON_*): nothing is thrown for
// it.
std::vector<StoredModel> ollama_models(const std::filesystem::path& store);

// Every GGUF model below `folder`, at most `depth` folders down, by path, named by its path from
// there. Files whose name holds "mmproj" are image encoders: the one in a model's folder is its
// projector. Targets of links must lie in `store`.
std::vector<StoredModel> gguf_models(const std::filesystem::path& folder, int depth,
                                     const std::filesystem::path& store);
// The same of publisher/repo/file.gguf, with publisher/repo and the file's name as aliases.
std::vector<StoredModel> lm_studio_models(const std::filesystem::path& store);

// The image encoders next to a model's file, by name.
std::vector<std::filesystem::path> projectors_next_to(const std::filesystem::path& model);

// Error kModel, E_MODEL_LINK, where `entry` leads out of `store`.
void check_link(const std::filesystem::path& entry, const std::filesystem::path& store);

}  // namespace tessera
