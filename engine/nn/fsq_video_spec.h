// Plain data that describes the video tokenizer of Cosmos (NVIDIA, "Cosmos World Foundation Model
// Platform", 2025, section 4): a Haar wavelet of patches of 4x4x4, residual blocks whose
// convolutions are split into one over a frame and one along time, attention over a frame and then
// along time in the middle, and codes by finite scalar quantization (Mentzer et al. 2023). Nothing
// looks ahead in time: the first frame makes a grid of codes alone, every frames() further ones
// another.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/backend/backend.h"
#include "engine/core/index.h"
#include "engine/nn/vq_graph.h"
#include "engine/nn/vq_spec.h"

namespace tessera {

struct FsqVideoSpec {
  std::int64_t channels = 128;
  std::vector<std::int64_t> multipliers = {2, 4, 4};
  std::int64_t res_blocks = 2;  // per level in the encoder; the decoder has one more
  std::int64_t latent_channels = 16;
  std::vector<std::int64_t> levels = {8, 8, 8, 5, 5, 5};  // of each element of a code vector
  std::int64_t patch = 4;     // of the wavelet, along all three axes: 1, 2 or 4
  std::int64_t spatial = 16;  // pixels per code along one side
  std::int64_t temporal = 8;  // frames of a grid
  std::string prefix;         // before every tensor name

  int levels_count() const { return narrow<int>(multipliers.size()); }
  std::int64_t codes() const;
  int frames() const { return narrow<int>(temporal); }
  int halvings(std::int64_t compression) const;  // beyond the wavelet
  // Elements of a wavelet patch.
  std::int64_t patch_channels() const { return 3 * patch * patch * patch; }
  std::int64_t width_of(int level) const { return channels * nth(multipliers, level); }
  std::int64_t deepest() const { return width_of(levels_count() - 1); }
};

// How a level resamples after its blocks; neither = it has nothing there.
struct FsqVideoResample {
  bool space = false, time = false;
};
// Of the encoder's levels, the last one apart.
FsqVideoResample encoder_resample(const FsqVideoSpec& spec, int level);
// Of the decoder's levels, run from the last one down; level 0 apart.
FsqVideoResample decoder_resample(const FsqVideoSpec& spec, int level);

// Every tensor with its shape (out, in, kt, kh, kw) under the names of the authors' state dict.
// Those of a resampling that a level does not do are in the file all the same: they are in
// fsq_video_unused().
std::vector<TensorSpec> fsq_video_tensors(const FsqVideoSpec& spec);
std::vector<std::string> fsq_video_unused(const FsqVideoSpec& spec);

// Bytes of packed weights.
std::size_t fsq_video_weight_bytes(const FsqVideoSpec& spec, const Backend& backend, DType storage,
                                  VqHalves halves);
// Bytes that decoding grids of rows x cols codes takes next to the weights, the frames of one grid
// included.
std::size_t fsq_video_scratch_bytes(const FsqVideoSpec& spec, const Backend& backend, int rows,
                                   int cols);

}  // namespace tessera
