// The VQGAN tokenizer of LlamaGen and Janus: latents and codebook rows have unit length, the
// nearest code is the argmin of |z|^2 + |e|^2 - 2 z.e with the lowest index on a tie.
#pragma once

#include <optional>

#include "engine/checkpoint/checkpoint.h"
#include "engine/core/index.h"
#include "engine/nn/vq_graph.h"
#include "tokenizers/visual/visual_tokenizer.h"

namespace tessera {

class VqTokenizer final : public VisualTokenizer {
 public:
  // Packs the tensors that vq_tensors(spec) names, in `storage` (f32 or bf16), and releases their
  // pages one by one. The backend must outlive the tokenizer. Error kModel (E_WEIGHT_...) naming
  // file and tensor if one is missing, has another shape or type, or holds a NaN or infinity.
  VqTokenizer(Backend& backend, const VqSpec& spec, const Checkpoint& checkpoint, DType storage,
              TokenizerHalves halves);

  std::int64_t codes() const override { return spec_.codes; }
  int factor() const override { return narrow<int>(spec_.downsample()); }
  std::vector<std::int32_t> encode(ConstTensorView image) const override;
  Tensor decode(std::span<const std::int32_t> ids, int rows, int cols) const override;
  std::size_t decode_scratch_bytes(int rows, int cols) const override;
  std::vector<std::uint8_t> to_pixels(ConstTensorView image) const override;

  // What quant_conv gives, before the nearest code is sought: [H/f, W/f, embed_dim] host f32.
  Tensor latents(ConstTensorView image) const;

  // Code vectors as they are compared, [V, D] host f32.
  Tensor codebook() const override;

  const VqSpec& spec() const { return spec_; }

 private:
  TensorView run_encoder(FeatureArena& arena, ConstTensorView image) const;

  Backend& backend_;
  VqSpec spec_;
  Tensor codebook_;  // [V, D] f32 on the device, rows of unit length if the spec says so
  std::optional<ConvStack> decoder_;
  std::optional<ConvStack> encoder_;
};

// Float image [H, W, 3] to bytes by one of the published rounding rules; NaN becomes 0. `levels`
// are those of PixelRule::kLevels.
std::vector<std::uint8_t> pixels_from_image(ConstTensorView image, PixelRule rule,
                                            const PixelLevels& levels = {});

}  // namespace tessera
