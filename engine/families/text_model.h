// Models that write text and nothing else: a folder with the config.json of LlamaForCausalLM,
// MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM or Gemma3ForCausalLM, or a GGUF file of
// these.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "engine/core/json.h"
#include "engine/families/open_model.h"

namespace tessera {

struct FolderAccount;

struct TextSpec {
  ModelSpec model;    // its text alone: neither describes nor generates
  std::string limit;  // the key because of which texts end before the trained length; empty = none
  std::int32_t class_end = -1;  // what an absent eos_token_id means; kNoEnd = no token
  std::shared_ptr<const Json> config;  // config.json, or what it would be
  // Of a folder's keys, or of a file's: of those that say what the model is.
  std::shared_ptr<const FolderAccount> account;
};

// "llama, mistral, qwen2 ...": the model_types of folders.
std::string text_model_types();

// Whether `path` is to be opened so: a .gguf file, or a folder of one of these types.
bool is_text_model(const std::filesystem::path& path);

// The model at `path`, a folder or a .gguf file, opened and checked tensor by tensor; no weights
// are read. `spec` gets what is known of it besides. Error kModel naming file, key or tensor,
// expected and found: E_TEXT_MODEL for a folder of another model_type, E_TENSORS for missing, wrong
// or surplus tensors, E_GGUF_* and E_JSON_*.
OpenedModel open_text_model(const std::filesystem::path& path, TextSpec& spec);

}  // namespace tessera
