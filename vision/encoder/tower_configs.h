// Shared by the readers of config.json of the families; internal to this folder.
#pragma once

#include "vision/encoder/vision_tower.h"

namespace tessera {

inline constexpr std::int64_t kMaxTowerWidth = 1 << 16;

// Class defaults that stand in for absent keys.
struct TowerDefaults {
  std::int64_t width, mlp, layers, heads, image, patch;
  const char* activation;
  double eps;
};

// Error kModel naming file and path when the activation is none of ours.
VitActivation activation_of(const JsonReader& config, std::string_view key,
                            const std::string& fallback);
// Width, layers, heads, patch, grid, norm and activation under the names that CLIP, SigLIP and
// Idefics3 share.
void read_tower_sizes(const JsonReader& vision, const TowerDefaults& defaults, VitSpec& vit);

// Each from the whole config.json of its family.
VisionTower parse_llava(const JsonReader& config);
VisionTower parse_llava_onevision(const JsonReader& config);
VisionTower parse_janus_port(const JsonReader& config);
VisionTower parse_janus_original(const JsonReader& config);
VisionTower parse_qwen2(const JsonReader& config);
VisionTower parse_qwen2_5(const JsonReader& config);
VisionTower parse_idefics(const JsonReader& config);

}  // namespace tessera
