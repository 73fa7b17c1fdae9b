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
// image_size, pixels a side, at least a patch and at most `most`; `usual` where it is absent. Error
// kModel naming patch_size where that is larger than what is usual.
std::int64_t read_image_side(const JsonReader& vision, std::int64_t usual, std::int64_t patch,
                             std::int64_t most);
// Width, layers, heads, patch, grid, norm and activation under the names that CLIP, SigLIP and
// Idefics3 share.
void read_tower_sizes(const JsonReader& vision, const TowerDefaults& defaults, VitSpec& vit);

}  // namespace tessera
