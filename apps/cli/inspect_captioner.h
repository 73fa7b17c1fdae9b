// The part of `tessera inspect` that shows what a model needs to describe images.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "apps/cli/flags.h"
#include "apps/cli/session.h"
#include "apps/runtime/model_catalog.h"
#include "engine/families/model_spec.h"

namespace tessera {

struct CaptionerQuestion {
  std::string model;
  std::string projector{};             // the file of its image encoder, as for caption --mmproj
  std::int64_t batch_size = 1;         // texts at once
  std::int64_t width = 0, height = 0;  // pixels of an image; 0 = 640x480
  std::optional<std::string> prompt;
  bool memory = false;
  DeviceFlags device;
};

// Whether the model reads images.
bool captions_images(const ModelReference& model);
// Fields of the model, with "memory" when it was asked for. Error kModel.
nlohmann::ordered_json captioner_json(const CaptionerQuestion& question);
// Every key of its files, a line each.
void print_captioner_keys(const Session& session, const CaptionerQuestion& question);
// Every tensor of its two halves.
std::vector<TensorSpec> captioner_tensors(const CaptionerQuestion& question);

}  // namespace tessera
