// LLaVA-1.5, LLaVA-NeXT and LLaVA-OneVision: CLIP or SigLIP with two linear layers behind it, from
// the files of the port and of the original (liuhaotian/llava-*), which name their parts otherwise.
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "vision/encoder/tower_configs.h"

namespace tessera {

namespace {

constexpr TowerDefaults kClip = {768, 3072, 12, 12, 224, 32, "quick_gelu", 1e-5};
constexpr TowerDefaults kSiglip = {768, 3072, 12, 12, 224, 16, "gelu_pytorch_tanh", 1e-6};

TowerLayout layout(const char* tower, const char* projector, std::vector<std::string> layers) {
  TowerLayout out;
  out.vit.prefix = tower;
  out.projector_prefix = projector;
  out.projector_layers = std::move(layers);
  return out;
}

std::vector<TowerLayout> port_layouts() {
  const std::vector<std::string> layers = {"linear_1", "linear_2"};
  return {layout("vision_tower.vision_model.", "multi_modal_projector.", layers),
          layout("model.vision_tower.vision_model.", "model.multi_modal_projector.", layers),
          layout("model.vision_tower.", "model.multi_modal_projector.", layers)};
}

// The tower within the model's files, or in CLIP's own.
std::vector<TowerLayout> original_layouts() {
  return {
      layout("model.vision_tower.vision_tower.vision_model.", "model.mm_projector.", {"0", "2"}),
      layout("vision_model.", "model.mm_projector.", {"0", "2"})};
}

std::vector<TowerLayout> joined(std::vector<TowerLayout> first, std::vector<TowerLayout> second) {
  for (TowerLayout& one : second) first.push_back(std::move(one));
  return first;
}

// Entry 0 of the reference's hidden states is what enters layer 0; -1 the output of the last layer,
// without the norm behind it. Several entries are joined on the channels.
void read_feature_layers(const JsonReader& config, const char* key, std::int64_t fallback,
                         VitSpec& vit) {
  const std::int64_t low = -vit.layers - 1, high = vit.layers;
  std::vector<std::int64_t> entries;
  if (config.has(key) && config.raw(key).is_array()) {
    entries = config.integers(key, low, high, 64);
    if (entries.empty()) config.fail(key, "at least one layer", "none");
  } else {
    entries = {config.integer_or(key, fallback, low, high)};
  }
  vit.run_layers = 0;
  for (std::int64_t& entry : entries) {
    if (entry < 0) entry += vit.layers + 1;
    vit.run_layers = std::max(vit.run_layers, entry);
  }
  if (entries.size() > 1) vit.taps = entries;
}

void read_text_width(const JsonReader& config, ProjectorSpec& projector) {
  std::int64_t out = 4096;
  if (config.has("text_config")) {
    out = config.object("text_config").integer_or("hidden_size", 4096, 1, kMaxTowerWidth);
  }
  projector.widths = {out, out};
}

VisionTower parse_port(const JsonReader& config, std::int64_t feature_layer,
                       const char* strategy_fallback) {
  static constexpr std::array<std::string_view, 2> kTowers = {"clip_vision_model",
                                                              "siglip_vision_model"};
  static constexpr const char* kStrategy = "vision_feature_select_strategy";
  const JsonReader vision = config.object("vision_config");
  const bool clip = vision.choice("model_type", kTowers) == kTowers[0];
  VisionTower tower;
  VitSpec& vit = tower.vit;
  read_tower_sizes(vision, clip ? kClip : kSiglip, vit);
  vit.class_token = vit.first_norm = clip;
  vit.patch_bias = !clip;
  vit.final_norm = VitFinalNorm::kUnused;
  read_feature_layers(config, "vision_feature_layer", feature_layer, vit);
  const std::string strategy = config.string_or(kStrategy, strategy_fallback);
  if (strategy != "default" && strategy != "full") {
    config.fail(kStrategy, "default or full", strategy);
  }
  // "default" drops the first row whatever it is: of SigLIP that is a patch.
  if (!clip && strategy == "default") {
    config.fail(kStrategy, "full, as SigLIP has no class token to drop", strategy);
  }
  vit.class_token_feature = clip && strategy == "full";
  read_text_width(config, tower.projector);
  tower.projector.bias = config.boolean_or("multimodal_projector_bias", true);
  tower.projector.activation = activation_of(config, "projector_hidden_act", "gelu");
  tower.layouts = joined(port_layouts(), original_layouts());
  tower.ignored = {"embeddings.position_ids", "head.*"};
  return tower;
}

// The original names its encoder, CLIP-L, and gives no sizes.
VisionTower parse_original(const JsonReader& config) {
  static constexpr std::array<std::string_view, 2> kTowers = {"openai/clip-vit-large-patch14-336",
                                                              "openai/clip-vit-large-patch14"};
  static constexpr std::array<std::string_view, 1> kProjectors = {"mlp2x_gelu"};
  static constexpr std::array<std::string_view, 2> kFeatures = {"patch", "cls_patch"};
  VisionTower tower;
  VitSpec& vit = tower.vit;
  vit.grid = config.choice("mm_vision_tower", kTowers) == kTowers[0] ? 24 : 16;
  vit.class_token = vit.first_norm = true;
  vit.final_norm = VitFinalNorm::kUnused;
  config.integer_or("mm_hidden_size", vit.width, vit.width, vit.width);
  read_feature_layers(config, "mm_vision_select_layer", -2, vit);
  vit.class_token_feature = config.has("mm_vision_select_feature") &&
                            config.choice("mm_vision_select_feature", kFeatures) == kFeatures[1];
  config.choice("mm_projector_type", kProjectors);
  const std::int64_t out = config.integer("hidden_size", 1, kMaxTowerWidth);
  tower.projector.widths = {out, out};
  tower.layouts = joined(original_layouts(), port_layouts());
  tower.ignored = {"embeddings.position_ids"};
  return tower;
}

}  // namespace

VisionTower parse_llava(const JsonReader& config) {
  return config.has("mm_vision_tower") ? parse_original(config) : parse_port(config, -2, "default");
}

// Its SigLIP is published without the last of 27 layers: the output of the 26th is the feature.
VisionTower parse_llava_onevision(const JsonReader& config) {
  return parse_port(config, -1, "full");
}

}  // namespace tessera
