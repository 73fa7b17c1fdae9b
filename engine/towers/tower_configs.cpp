// Keys of image encoders that several families share.
#include "engine/towers/tower_configs.h"

#include <nlohmann/json.hpp>

#include "engine/core/index.h"

namespace tessera {

VitActivation activation_of(const JsonReader& config, std::string_view key,
                            const std::string& fallback) {
  const std::string name = config.string_or(key, fallback);
  if (name == "gelu") return VitActivation::kGelu;
  if (name == "gelu_pytorch_tanh") return VitActivation::kGeluTanh;
  if (name == "quick_gelu") return VitActivation::kQuickGelu;
  config.fail(key, "gelu, gelu_pytorch_tanh or quick_gelu", name);
}

std::int64_t read_image_side(const JsonReader& vision, std::int64_t usual, std::int64_t patch,
                             std::int64_t most) {
  const std::int64_t side = vision.integer_or("image_size", usual, patch, most);
  if (side >= patch) return side;
  vision.fail("patch_size", "at most " + std::to_string(side) + ", the pixels of a side",
              std::to_string(patch));
}

void read_tower_sizes(const JsonReader& vision, const TowerDefaults& defaults, VitSpec& vit) {
  vit.width = vision.integer_or("hidden_size", defaults.width, 1, kMaxTowerWidth);
  vit.mlp_width = vision.integer_or("intermediate_size", defaults.mlp, 1, kMaxTowerWidth);
  vit.layers = vision.integer_or("num_hidden_layers", defaults.layers, 1, 1024);
  vit.heads = vision.integer_or("num_attention_heads", defaults.heads, 1, 1024);
  vit.patch = vision.integer_or("patch_size", defaults.patch, 1, 256);
  vit.grid = read_image_side(vision, defaults.image, vit.patch, 16384) / vit.patch;
  vit.norm_eps = to_float(vision.number_or("layer_norm_eps", defaults.eps, 1e-12, 0.1));
  vit.activation = activation_of(vision, "hidden_act", defaults.activation);
  vit.run_layers = vit.layers;
}

}  // namespace tessera
