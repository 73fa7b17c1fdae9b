// A model folder that generates images and describes them: test:tiny's describing half with made-up
// weights for what it lacks to generate, and the test tokenizer.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "engine/core/io.h"
#include "engine/families/describe.h"
#include "apps/lab/models/random_weights.h"
#include "apps/lab/models/test_models.h"
#include "tests/support/model_runner.h"
#include "tests/support/temp_folder.h"

namespace tessera {

class JanusFolder {
 public:
  JanusFolder() {
    const OpenedModel captioner = make_up_captioner("test:tiny");
    Json config = *captioner.spec.describe->config;
    config["vision_config"]["num_image_tokens"] = 16;
    config["vq_config"] = Json::parse(test_model_config("tiny"))["vq_config"];
    config["vq_config"]["num_patches"] = 4;  // of the encoder: the image is as wide as what it sees
    write_file_atomic(folder_ / "config.json", config.dump());
    write_file_atomic(folder_ / "tokenizer.json", test_tokenizer_json());
    write_file_atomic(folder_ / "preprocessor_config.json",
                      R"({"image_processor_type": "JanusImageProcessor", "image_mean": [0.5, 0.5, 0.5],
                          "image_std": [0.5, 0.5, 0.5], "size": {"height": 32, "width": 32}})");
    std::map<std::string, Tensor> tensors = copy_tensors(*captioner.weights);
    for (const TensorSpec& tensor : load_model_spec(folder_.path()).tensors) {
      if (tensors.contains(tensor.name)) continue;
      tensors.emplace(tensor.name, random_weight(tensor.name, tensor.shape, {.matrix_std = 0}));
    }
    std::map<std::string, ConstTensorView> views;
    for (const auto& [name, tensor] : tensors) views.emplace(name, tensor.view());
    write_safetensors(folder_ / "model.safetensors", views);
  }
  std::string path() const { return folder_.path().string(); }

 private:
  TempFolder folder_;
};

}  // namespace tessera
