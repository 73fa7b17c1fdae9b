// The VQGAN encoder and decoder of a VqSpec as step lists, and what they cost. Steps read the
// tensors that vq_tensors() names.
#pragma once

#include <vector>

#include "engine/nn/conv_blocks.h"
#include "engine/nn/vq_spec.h"

namespace tessera {

// Image [H, W, 3] -> latents [H/f, W/f, embed_dim], quant_conv included.
std::vector<ConvStep> vq_encoder_steps(const VqSpec& spec);
// Codebook rows [h, w, embed_dim] -> image [h f, w f, 3], post_quant_conv included.
std::vector<ConvStep> vq_decoder_steps(const VqSpec& spec);
// The same without quant_conv: latents [.., latent_channels] come out and go in.
std::vector<ConvStep> vq_encoder_body(const VqSpec& spec);
std::vector<ConvStep> vq_decoder_body(const VqSpec& spec);

// Bytes that decoding rows x cols codes takes next to the weights: feature maps (two at most), the
// backend's scratch, the looked-up codebook rows and the image emitted.
std::size_t vq_decode_scratch_bytes(const VqSpec& spec, const Backend& backend, int rows, int cols);
// The same for encoding an image of rows x cols codes.
std::size_t vq_encode_scratch_bytes(const VqSpec& spec, const Backend& backend, int rows, int cols);

// Bytes of packed weights: decoder and codebook, and the encoder if asked for.
enum class VqHalves : std::uint8_t { kDecoder, kBoth };
std::size_t vq_weight_bytes(const VqSpec& spec, const Backend& backend, DType storage,
                            VqHalves halves);

}  // namespace tessera
