// The part of `inspect` that is about GGUF files, also those that cannot be run here.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>

#include "apps/cli/session.h"
#include "apps/runtime/model_catalog.h"

namespace tessera {

bool is_gguf_model(const ModelReference& model);

// What the file says, whether it writes texts here, and what that takes in memory with each storage
// type; `parts`: the memory in its parts. Error kModel for a file that is no GGUF.
nlohmann::ordered_json gguf_json(const ModelReference& model, bool parts);
// A line a tensor, as the file names it, with shape and type.
void print_gguf_tensors(const Session& session, const std::filesystem::path& file);
// Every key of the file, and what becomes of it.
void print_gguf_keys(const Session& session, const ModelReference& model);

}  // namespace tessera
