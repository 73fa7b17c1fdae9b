// Image encoders in GGUF files, next to the language model's: what a family file says of its own.
// Keys and names: the gguf package's constants.py, and the converters of llama.cpp.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "engine/checkpoint/checkpoint.h"
#include "engine/core/json.h"
#include "engine/families/gguf_keys.h"
#include "engine/towers/vision_tower.h"

namespace tessera {

// What a family reads of a pair: the keys under "clip" and the encoder's tensors, as its file names
// them; of the language model, the tokens and the width.
struct GgufEncoder {
  GgufKeyReader& keys;
  const Checkpoint& weights;
  const GgufFile& model;  // keys of the language model
  std::int64_t text_width = 0;

  bool has(std::string_view tensor) const { return weights.tensors().contains(tensor); }
  // Rows of a matrix. Error kModel (E_GGUF_PAIR) naming it, where it is missing or none.
  std::int64_t rows(std::string_view tensor) const;
  // The id of a token that the language model's file lists, or -1.
  std::int64_t token(std::string_view text) const;
};

// The encoders of one clip.projector_type.
struct GgufProjector {
  std::string_view type;
  std::span<const std::string_view> architectures;  // of the language models that it fits
  // Into the config.json that a folder of the pair would have, with no more of its text_config than
  // what the language model's file says otherwise, and its preprocessor_config.json.
  void (*read)(GgufEncoder& encoder, Json& config, Json& processor) = nullptr;
  std::string_view last;                     // the projector's last matrix, "mm.2"
  std::string_view norm;                     // of the projector, as the file names it; empty = none
  std::span<const std::string_view> layers;  // of the projector, after "mm."
  std::string_view token;                    // that stands for images; empty = it may lack one
  std::string_view video_token;              // or of videos; empty = none
  // A tensor that older converters put in for readers that want one, after "v."; empty = none.
  std::string_view placeholder;
};

// vision_config: sizes under the names that CLIP, SigLIP and Idefics3 share, without an activation.
Json clip_sizes(GgufEncoder& encoder);
// "silu" or "gelu", whichever of use_silu and use_gelu is set; "quick_gelu" without either.
std::string clip_activation(GgufEncoder& encoder);
// image_mean and image_std, three numbers each, into `processor`.
void clip_levels(GgufEncoder& encoder, Json& processor);

}  // namespace tessera
