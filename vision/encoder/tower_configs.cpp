// Janus (port and original), Qwen2-VL, Qwen2.5-VL, Idefics3 and SmolVLM: config.json to specs, and
// the names their files use.
#include "vision/encoder/tower_configs.h"

#include <array>
#include <nlohmann/json.hpp>

namespace tessera {

VitActivation activation_of(const JsonReader& config, std::string_view key,
                            const std::string& fallback) {
  const std::string name = config.string_or(key, fallback);
  if (name == "gelu") return VitActivation::kGelu;
  if (name == "gelu_pytorch_tanh") return VitActivation::kGeluTanh;
  if (name == "quick_gelu") return VitActivation::kQuickGelu;
  config.fail(key, "gelu, gelu_pytorch_tanh or quick_gelu", name);
}

void read_tower_sizes(const JsonReader& vision, const TowerDefaults& defaults, VitSpec& vit) {
  vit.width = vision.integer_or("hidden_size", defaults.width, 1, kMaxTowerWidth);
  vit.mlp_width = vision.integer_or("intermediate_size", defaults.mlp, 1, kMaxTowerWidth);
  vit.layers = vision.integer_or("num_hidden_layers", defaults.layers, 1, 1024);
  vit.heads = vision.integer_or("num_attention_heads", defaults.heads, 1, 1024);
  vit.patch = vision.integer_or("patch_size", defaults.patch, 1, 256);
  const std::int64_t image = vision.integer_or("image_size", defaults.image, vit.patch, 16384);
  vit.grid = image / vit.patch;
  vit.norm_eps = static_cast<float>(vision.number_or("layer_norm_eps", defaults.eps, 1e-12, 0.1));
  vit.activation = activation_of(vision, "hidden_act", defaults.activation);
  vit.run_layers = vit.layers;
}

namespace {

VitNames janus_port_names() {
  VitNames names;
  names.prefix = "model.vision_model.";
  names.out = "self_attn.projection_layer";
  return names;
}

VitNames janus_original_names() {
  VitNames names;
  names.prefix = "vision_model.vision_tower.";
  names.patch = "patch_embed.proj";
  names.positions = "pos_embed";
  names.positions_batched = true;
  names.layer = "blocks.{}.";
  names.norm1 = "norm1";
  names.norm2 = "norm2";
  names.qkv = {"attn.qkv"};
  names.out = "attn.proj";
  names.final_norm = "norm";
  return names;
}

}  // namespace

VisionTower parse_janus_port(const JsonReader& config) {
  const JsonReader vision = config.object("vision_config");
  VisionTower tower;
  VitSpec& vit = tower.vit;
  read_tower_sizes(vision, {1024, 0, 24, 16, 384, 16, "gelu", 1e-6}, vit);
  const double ratio = vision.number_or("mlp_ratio", 4.0, 0.01, 64.0);
  vit.mlp_width = static_cast<std::int64_t>(static_cast<double>(vit.width) * ratio);
  vit.patch_bias = true;
  if (vision.boolean_or("use_qk_norm", false)) vision.fail("use_qk_norm", "false", "true");
  if (!vision.boolean_or("attention_bias", true)) vision.fail("attention_bias", "true", "false");
  const std::int64_t out = vision.integer_or("projection_dim", 2048, 1, kMaxTowerWidth);
  const std::int64_t depth = vision.integer_or("depth", 2, 1, 8);
  ProjectorSpec& projector = tower.projector;
  projector.layers = {"fc1"};
  for (std::int64_t i = 1; i < depth; ++i) {
    projector.layers.push_back("hidden_layers." + std::to_string(i - 1));
  }
  projector.widths.assign(projector.layers.size(), out);
  projector.activation = vit.activation;
  tower.layouts.push_back({janus_port_names(), "model.aligner.", {}});
  return tower;
}

// The original names a fixed encoder, SigLIP-L with the exact GELU.
VisionTower parse_janus_original(const JsonReader& config) {
  static constexpr std::array<std::string_view, 1> kEncoders = {"siglip_large_patch16_384"};
  static constexpr std::array<std::string_view, 1> kProjectors = {"mlp_gelu"};
  const JsonReader params = config.object("vision_config").object("params");
  params.choice("model_name", kEncoders);
  params.integer_or("image_size", 384, 384, 384);
  params.integer_or("select_layer", -1, -1, -1);
  VisionTower tower;
  VitSpec& vit = tower.vit;
  vit.patch = 16;
  vit.activation = VitActivation::kGelu;
  vit.norm_eps = 1e-6f;
  vit.patch_bias = true;
  const JsonReader aligner = config.object("aligner_config").object("params");
  aligner.choice("projector_type", kProjectors);
  const std::int64_t out = aligner.integer("n_embed", 1, kMaxTowerWidth);
  const std::int64_t depth = aligner.integer_or("depth", 2, 1, 8);
  for (std::int64_t i = 0; i < depth; ++i) {
    tower.projector.layers.push_back("layers." + std::to_string(2 * i));
    tower.projector.widths.push_back(out);
  }
  tower.layouts.push_back({janus_original_names(), "aligner.", {}});
  tower.ignored = {"attn_pool.*"};
  return tower;
}

namespace {

void read_qwen_shared(const JsonReader& vision, VisionTower& tower) {
  VitSpec& vit = tower.vit;
  vit.layers = vit.run_layers = vision.integer_or("depth", 32, 1, 1024);
  vit.heads = vision.integer_or("num_heads", 16, 1, 1024);
  vit.patch = vision.integer_or("patch_size", 14, 1, 256);
  vit.frames = vision.integer_or("temporal_patch_size", 2, 1, 16);
  vit.merge = vision.integer_or("spatial_merge_size", 2, 1, 8);
  vision.integer_or("in_channels", 3, 3, 3);
  vit.positions = VitPositions::kRotary2d;
  vit.final_norm = VitFinalNorm::kNone;
  vit.norm_eps = 1e-6f;
  tower.projector.cell = vit.merge;
  tower.projector.norm = "ln_q";
  tower.projector.layers = {"mlp.0", "mlp.2"};
  for (const char* prefix : {"visual.", "model.visual."}) {
    TowerLayout layout;
    layout.vit.prefix = prefix;
    layout.vit.patch = "patch_embed.proj";
    layout.vit.layer = "blocks.{}.";
    layout.vit.norm1 = "norm1";
    layout.vit.norm2 = "norm2";
    layout.vit.qkv = {"attn.qkv"};
    layout.vit.out = "attn.proj";
    layout.projector_prefix = std::string(prefix) + "merger.";
    tower.layouts.push_back(layout);
  }
}

}  // namespace

VisionTower parse_qwen2(const JsonReader& config) {
  const JsonReader vision = config.object("vision_config");
  VisionTower tower;
  read_qwen_shared(vision, tower);
  VitSpec& vit = tower.vit;
  vit.width = vision.integer_or("embed_dim", 1280, 1, kMaxTowerWidth);
  vit.mlp_width = vit.width * vision.integer_or("mlp_ratio", 4, 1, 64);
  vit.activation = activation_of(vision, "hidden_act", "quick_gelu");
  const std::int64_t joined = vit.merge * vit.merge * vit.width;
  tower.projector.widths = {joined, vision.integer_or("hidden_size", 3584, 1, kMaxTowerWidth)};
  return tower;
}

VisionTower parse_qwen2_5(const JsonReader& config) {
  static constexpr std::array<std::string_view, 1> kActivations = {"silu"};
  const JsonReader vision = config.object("vision_config");
  VisionTower tower;
  read_qwen_shared(vision, tower);
  VitSpec& vit = tower.vit;
  vit.width = vision.integer("hidden_size", 1, kMaxTowerWidth);
  vit.mlp_width = vision.integer_or("intermediate_size", 3420, 1, kMaxTowerWidth);
  if (vision.has("hidden_act")) vision.choice("hidden_act", kActivations);
  vit.activation = VitActivation::kSiluGated;
  vit.norm = tower.projector.norm_kind = VitNorm::kRms;
  const std::int64_t pixels = vision.integer_or("window_size", 112, 1, 16384);
  vit.window = pixels / vit.merge / vit.patch;
  if (vit.window < 1)
    vision.fail("window_size", "at least one merged patch", std::to_string(pixels));
  vit.full_layers = vision.has("fullatt_block_indexes")
                        ? vision.integers("fullatt_block_indexes", 0, vit.layers - 1, 1024)
                        : std::vector<std::int64_t>{7, 15, 23, 31};
  for (TowerLayout& layout : tower.layouts) layout.vit.mlp_in = {"mlp.gate_proj", "mlp.up_proj"};
  for (TowerLayout& layout : tower.layouts) layout.vit.mlp_out = "mlp.down_proj";
  const std::int64_t joined = vit.merge * vit.merge * vit.width;
  tower.projector.widths = {joined, vision.integer_or("out_hidden_size", 3584, 1, kMaxTowerWidth)};
  return tower;
}

VisionTower parse_idefics(const JsonReader& config) {
  const JsonReader vision = config.object("vision_config");
  VisionTower tower;
  VitSpec& vit = tower.vit;
  read_tower_sizes(vision, {1152, 3072, 12, 16, 224, 32, "gelu_pytorch_tanh", 1e-6}, vit);
  vit.patch_bias = true;
  vit.positions = VitPositions::kBuckets;
  ProjectorSpec& projector = tower.projector;
  projector.cell = config.integer_or("scale_factor", 2, 1, 16);
  projector.layers = {"modality_projection.proj"};
  projector.widths = {config.object("text_config").integer("hidden_size", 1, kMaxTowerWidth)};
  projector.bias = false;
  TowerLayout layout;
  layout.vit.prefix = "model.vision_model.";
  layout.projector_prefix = "model.connector.";
  tower.layouts = {layout};
  return tower;
}

}  // namespace tessera
