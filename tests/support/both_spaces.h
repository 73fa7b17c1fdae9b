// A model with both halves of a Janus: the recorded one, which describes, with made-up weights for
// what it lacks to generate. 96 ids of text, 64 codes.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include "apps/lab/models/random_weights.h"
#include "engine/families/describe.h"
#include "engine/families/open_model.h"
#include "tests/support/model_runner.h"
#include "tests/support/temp_folder.h"

namespace tessera {

class BothSpaces {
 public:
  using Edit = std::function<void(std::map<std::string, Tensor>&)>;

  explicit BothSpaces(const Edit& edit = [](auto&) {}) {
    for (const char* name : {"config.json", "preprocessor_config.json"}) {
      std::filesystem::copy_file(recorded() / name, folder_ / name);
    }
    std::map<std::string, Tensor> tensors =
        copy_tensors(Checkpoint::open(recorded() / "model.safetensors"));
    for (const TensorSpec& tensor : load_model_spec(folder_.path()).tensors) {
      if (tensors.contains(tensor.name)) continue;
      tensors.emplace(tensor.name, random_weight(tensor.name, tensor.shape, {.matrix_std = 0}));
    }
    edit(tensors);
    std::map<std::string, ConstTensorView> views;
    for (const auto& [name, tensor] : tensors) views.emplace(name, tensor.view());
    write_safetensors(folder_ / "model.safetensors", views);
  }

  StreamModel load(Backend& backend, ModelUse use = ModelUse::kAll) const {
    OpenedModel opened = open_model(folder_.path().string(), {.use = use});
    return load_stream_model(opened, backend, DType::kF32);
  }
  const TempFolder& folder() const { return folder_; }
  static std::filesystem::path recorded() {
    return std::filesystem::path(TESSERA_SOURCE_DIR) / "tests" / "golden" / "lmm" / "janus";
  }

 private:
  TempFolder folder_;
};

}  // namespace tessera
