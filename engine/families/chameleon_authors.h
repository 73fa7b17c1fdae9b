// Chameleon as its authors released it: sizes in params.json, weights in consolidated.pth under
// Llama's first names, heads that turn in interleaved pairs.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "engine/families/family.h"

namespace tessera {

// Keys of their ModelArgs: params.json, its object "model", then consolidate_params.json, each over
// the ones before. Error kModel.
Json read_chameleon_params(const std::filesystem::path& folder);

// rope.positions is for the caller to set. Error kModel naming the key.
ModelConfig chameleon_authors_model(const JsonReader& params);
WeightNames chameleon_authors_names(const ModelConfig& model);
// `parts`: files that the model was cut into; norms of heads are of each.
std::vector<TensorSpec> chameleon_authors_tensors(const ModelConfig& model, std::int64_t vocab,
                                                  std::int64_t parts);
// consolidated.00.pth and so on of a model that was cut into so many; error kModel where there are
// more or fewer.
ModelSpec::Parts chameleon_parts(const JsonReader& params, const std::filesystem::path& folder,
                                 std::int64_t parts);

}  // namespace tessera
