// Keys of image encoders that several families share, for the readers of their config.json.
#pragma once

#include "engine/core/json.h"
#include "engine/towers/vit_spec.h"

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

}  // namespace tessera
