// Plain data that describes one vision transformer (Dosovitskiy et al. 2021) as the published
// captioning models use them: CLIP (Radford et al. 2021), SigLIP (Zhai et al. 2023) with its
// variable grids (Idefics3), Qwen2-VL and Qwen2.5-VL. And the list of tensors such a tower has.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/core/tensor.h"
#include "engine/nn/vq_spec.h"

namespace tessera {

enum class VitNorm : std::uint8_t { kLayer, kRms };  // kRms has no bias
enum class VitActivation : std::uint8_t {
  kGelu,       // exact
  kGeluTanh,   // tanh form
  kQuickGelu,  // x sigmoid(1.702 x)
  kSiluGated,  // silu(gate) * up: the MLP has three matrices
};
enum class VitPositions : std::uint8_t {
  kNone,
  kLearned,   // one table row a place of the trained grid
  kBuckets,   // a smaller or larger grid takes the rows its fractional places fall on (Idefics3)
  kRotary2d,  // half of the pairs turn with the row, half with the column
};
// What becomes of the norm after the last layer.
enum class VitFinalNorm : std::uint8_t { kNone, kUnused, kApplied };

// Where the tensors stand; `{}` in `layer` is the layer's number. ".weight" and ".bias" follow the
// stems; `class_token` and `positions` are whole names. All after `prefix`.
struct VitNames {
  std::string prefix;
  std::string patch = "embeddings.patch_embedding";
  std::string class_token = "embeddings.class_embedding";
  std::string positions = "embeddings.position_embedding.weight";
  std::string first_norm = "pre_layrnorm";  // spelt so in the files
  std::string layer = "encoder.layers.{}.";
  std::string norm1 = "layer_norm1";
  std::string norm2 = "layer_norm2";
  // One fused tensor, or q, k, v.
  std::vector<std::string> qkv = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"};
  std::string out = "self_attn.out_proj";
  std::vector<std::string> mlp_in = {"mlp.fc1"};  // or gate, up
  std::string mlp_out = "mlp.fc2";
  std::string final_norm = "post_layernorm";
  bool positions_batched = false;  // the table is [1, places, C]
};

struct VitSpec {
  std::int64_t patch = 14;       // pixels a side
  std::int64_t frames = 1;       // frames of one patch: 2 for Qwen, a still counting twice
  std::int64_t width = 1024;     // C
  std::int64_t layers = 24;      // in the file
  std::int64_t run_layers = 24;  // the feature is the output of layer run_layers - 1
  // Or the rows after so many layers each (0: before the first), side by side on the channels in
  // this order; run_layers is the largest. Empty: one feature layer.
  std::vector<std::int64_t> taps;
  std::int64_t heads = 16;
  std::int64_t mlp_width = 4096;
  VitActivation activation = VitActivation::kQuickGelu;
  VitNorm norm = VitNorm::kLayer;
  float norm_eps = 1e-5f;
  bool patch_bias = false;
  bool class_token = false;          // row 0 of an image
  bool class_token_feature = false;  // it stays in the features, before the patches
  bool first_norm = false;           // before layer 0
  VitFinalNorm final_norm = VitFinalNorm::kApplied;
  VitPositions positions = VitPositions::kLearned;
  std::int64_t grid = 24;  // places a side of the trained table
  double rope_theta = 10000.0;
  std::int64_t merge = 1;                 // rows come in blocks of merge x merge places
  std::int64_t window = 0;                // merged places a side of an attention window; 0 = none
  std::vector<std::int64_t> full_layers;  // layers without windows
  VitNames names;

  // Columns of the features.
  std::int64_t feature_width() const { return width * std::max<std::int64_t>(1, std::ssize(taps)); }
  std::int64_t head_dim() const { return width / heads; }
  std::int64_t patch_inputs() const { return 3 * frames * patch * patch; }
  std::int64_t places() const { return grid * grid + (class_token ? 1 : 0); }  // of the table
  bool gated() const { return activation == VitActivation::kSiluGated; }
  bool has_window(std::int64_t layer) const;
};

// Every tensor of the tower with its shape, layers that are not run included.
std::vector<TensorSpec> vit_tensors(const VitSpec& spec);

// `{}` of the layer stem replaced by the number, after the prefix.
std::string vit_layer_name(const VitNames& names, std::int64_t layer);

// Error kModel (E_VIT_SPEC) naming the field when no such tower can be run: heads that do not
// divide the width, more layers run than there are, windows without rotary positions, ...
void check_vit_spec(const VitSpec& spec, const std::string& file);

}  // namespace tessera
