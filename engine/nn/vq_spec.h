// Plain data that describes one VQGAN tokenizer ("taming" graph: Esser et al. 2021, as LlamaGen and
// Janus instantiate it), and the list of tensors such a model has under each naming scheme.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/core/tensor.h"

namespace tessera {

// Name and expected shape of one tensor in a weight file.
struct TensorSpec {
  std::string name;
  Shape shape;
};

enum class VqNames : std::uint8_t {
  kLlamaGen,  // encoder.conv_blocks.{level}.res.{j}, mid.{0,1,2}; decoder level 0 is the deepest
  kHfJanus,   // encoder.down.{level}.block.{j}, mid.block_1; decoder.up.{k}, k in execution order
  kTaming,    // the same, but decoder.up.{level} with level 0 = full resolution, which runs last
};

// How a float in about [-1, 1] becomes a byte. The conventions differ by one level.
enum class PixelRule : std::uint8_t {
  kJanusTruncate,  // trunc(clip((x + 1) / 2 * 255, 0, 255))
  kLlamaGenEval,   // trunc(clip(127.5 x + 128, 0, 255))
  kLevels,         // trunc(clip((x + mean / std) / (1 / std) * scale, 0, 255)), see PixelLevels
};

// What undoes an image processor's normalisation, by channel.
struct PixelLevels {
  std::array<double, 3> mean = {0.5, 0.5, 0.5}, std = {0.5, 0.5, 0.5};
  double scale = 255.0;  // levels of one unit
};

struct VqSpec {
  std::int64_t base_channels = 128;
  std::vector<std::int64_t> multipliers = {1, 1, 2, 2, 4};  // level 0 = full resolution
  std::int64_t res_blocks = 2;  // per level in the encoder; the decoder has one more
  std::int64_t latent_channels = 256;
  std::int64_t embed_dim = 8;
  std::int64_t codes = 16384;
  std::int64_t image_channels = 3;
  bool attention_last_level = true;  // one AttnBlock after every ResBlock of the deepest level
  bool attention_mid = true;         // Res, Attn, Res between encoder or decoder and the latents
  bool l2_normalize = true;          // unit-length latents and codebook rows, eps 1e-12
  int norm_groups = 32;
  float norm_eps = 1e-6f;
  VqNames names = VqNames::kLlamaGen;
  std::string prefix;  // before every tensor name: "", "gen_vision_model.", "model.vqmodel."
  PixelRule pixels = PixelRule::kJanusTruncate;
  PixelLevels levels;      // of PixelRule::kLevels
  std::int64_t patch = 1;  // pixels of a side that a wavelet takes together before level 0

  // Pixels per code along one side.
  std::int64_t downsample() const { return patch << (multipliers.size() - 1); }
};

// Every tensor of the model with its expected shape (PyTorch order: out, in, kh, kw), in graph
// order.
std::vector<TensorSpec> vq_tensors(const VqSpec& spec);

// Sum of elements over vq_tensors: 71,883,403 for the published VQ-16.
std::int64_t vq_parameter_count(const VqSpec& spec);

// One block's place in the graph as a name without prefix, for instance
// "decoder.conv_blocks.0.res.2" or "decoder.up.0.block.2"; both the list above and the loader spell
// names through these.
enum class VqSide : std::uint8_t { kEncoder, kDecoder };
// Levels of a side count in execution order.
std::string vq_res_name(const VqSpec& spec, VqSide side, std::int64_t level, std::int64_t block);
std::string vq_attention_name(const VqSpec& spec, VqSide side, std::int64_t level,
                              std::int64_t block);
std::string vq_mid_name(VqNames names, VqSide side, int index);  // 0 Res, 1 Attn, 2 Res
// ".conv" included
std::string vq_resample_name(const VqSpec& spec, VqSide side, std::int64_t level);

}  // namespace tessera
