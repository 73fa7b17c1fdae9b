// Plain data that describes the video tokenizer of Emu3 (Wang et al. 2024, section 2.1; MoVQ: Zheng
// et al. 2022): a VQGAN encoder and decoder for frames, causal convolutions along time around
// the codebook, norms of the decoder conditioned on the code vectors. Four frames make one grid of
// codes; the first frame needs none before it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/nn/conv_blocks.h"
#include "engine/nn/vq_graph.h"
#include "engine/nn/vq_spec.h"

namespace tessera {

enum class MovqNames : std::uint8_t {
  kEmu3,    // the authors' files: decoder.mid.attn_1.norm.norm_layer.weight
  kHfEmu3,  // the Hugging Face port: decoder.middle_block.attn_norm.norm_layer.weight
};

struct MovqSpec {
  // Frames alone: embed_dim = latent_channels, no unit length, prefix.
  VqSpec frame;
  int time_steps = 2;  // halvings of time: 2^time_steps frames make one grid
  MovqNames names = MovqNames::kHfEmu3;

  int frames() const { return 1 << time_steps; }
};

// Encoder's and decoder's frame graphs, their names those of VqNames::kHfJanus; movq_name() turns
// them into a file's.
std::vector<ConvStep> movq_encoder_steps(const MovqSpec& spec);
std::vector<ConvStep> movq_decoder_steps(const MovqSpec& spec);
GroupNormOptions movq_norm(const MovqSpec& spec, VqSide side);

// A name of those graphs as the file spells it. `linear`: set if the file keeps that 1x1
// convolution's weight as a matrix.
std::string movq_name(const MovqSpec& spec, const std::string& name, bool& linear);

// Bytes that decoding a grid of rows x cols codes takes next to the weights: maps of the layers along
// time, one frame's arena, the frames emitted.
std::size_t movq_decode_scratch_bytes(const MovqSpec& spec, const Backend& backend, int rows,
                                      int cols);
// Bytes of packed weights: decoder and codebook, and the encoder if asked for.
std::size_t movq_weight_bytes(const MovqSpec& spec, const Backend& backend, DType storage,
                              VqHalves halves);

// Every tensor with its shape, batch norms' running statistics included.
std::vector<TensorSpec> movq_tensors(const MovqSpec& spec);

}  // namespace tessera
