// The seeded video model with another number of layers.
#pragma once

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "apps/lab/models/random_weights.h"
#include "apps/lab/models/test_models.h"
#include "engine/core/json.h"
#include "engine/families/open_model.h"

namespace tessera {

inline OpenedModel video_model(int layers, const char* kind = "clip") {
  Json config = parse_json(test_model_config(kind), kind);
  config["text_config"]["num_hidden_layers"] = layers;
  OpenedModel model;
  model.spec = parse_family_config(config.dump(), kind);
  std::map<std::string, Tensor> tensors;
  for (const TensorSpec& tensor : model.spec.tensors) {
    tensors.emplace(tensor.name,
                    random_weight(tensor.name, tensor.shape, {.seed = 7, .matrix_std = 0.0f}));
  }
  model.weights =
      std::make_shared<const Checkpoint>(Checkpoint::from_tensors(kind, std::move(tensors)));
  model.vq_weights = model.weights;
  model.source = source_of(model.weights);
  model.tokenizer_json = test_clip_tokenizer_json();
  return model;
}

}  // namespace tessera
