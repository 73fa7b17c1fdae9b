// A small LlamaGen that reads a text encoder's rows, as a folder.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/checkpoint/checkpoint.h"
#include "engine/core/json.h"
#include "engine/families/registry.h"
#include "tests/support/hashed_weights.h"
#include "tests/support/source_folder.h"
#include "tests/support/temp_folder.h"

namespace tessera {

inline void write_hashed(const std::filesystem::path& path, const std::vector<TensorSpec>& list) {
  const auto tensors = hashed_weights(list);
  std::map<std::string, ConstTensorView> views;
  for (const auto& [name, tensor] : tensors) views[name] = tensor.view();
  write_safetensors(path, views);
}

inline VqSpec small_image_tokenizer() {
  VqSpec spec;
  spec.base_channels = 32;
  spec.multipliers = {1, 1};
  spec.res_blocks = 1;
  spec.latent_channels = 8;
  spec.embed_dim = 4;
  spec.codes = 64;
  return spec;
}

// A folder as it is published, with an encoder inside.
class TextFolder {
 public:
  static constexpr std::int64_t kPlaces = 12, kCodes = 64, kSteps = 25;

  explicit TextFolder(bool encoder = true) {
    const Json config = {{"model_type", "t2i"},
                         {"dim", 32},
                         {"n_layer", 2},
                         {"n_head", 2},
                         {"multiple_of", 16},
                         {"vocab_size", kCodes},
                         {"cls_token_num", kPlaces},
                         {"caption_dim", 32},
                         {"block_size", kSteps}};
    put_file(root_ / "config.json", config.dump());
    write_hashed(root_ / "model.safetensors", parse_family_config(config.dump(), "c").tensors);
    write_hashed(root_ / "vq.safetensors", vq_tensors(small_image_tokenizer()));
    if (encoder)
      std::filesystem::copy(source_folder() / "tests" / "golden" / "t5" / "gated", root_ / "t5");
  }
  std::string path() const { return root_.path().string(); }

 private:
  TempFolder root_;
};

}  // namespace tessera
