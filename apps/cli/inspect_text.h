// The part of `tessera inspect` that shows a model of texts.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "apps/runtime/model_catalog.h"
#include "engine/families/folder_files.h"
#include "engine/families/model_spec.h"

namespace tessera {

struct InspectedText {
  std::shared_ptr<const nlohmann::ordered_json> fields;
  std::vector<TensorSpec> tensors;
  std::shared_ptr<const FolderAccount> account;  // null for a GGUF file
};

// Opens everything but weights. Error kModel as CompletionModel::open().
InspectedText inspect_text(const ModelReference& model);

}  // namespace tessera
