// Tensors of a T5's encoder, for the parser and the loader of text_encoder.h.
#pragma once

#include <cstdint>
#include <string>

namespace tessera {

inline constexpr const char* kT5Distances =
    "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight";
inline constexpr const char* kT5Norm = "encoder.final_layer_norm.weight";

inline std::string t5_block(std::int64_t layer) {
  return "encoder.block." + std::to_string(layer) + ".";
}

}  // namespace tessera
