// LLaVA's image encoders in GGUF files.
#pragma once

#include "engine/families/gguf_encoder.h"

namespace tessera {

inline constexpr const char* kSiglipActivation = "gelu_pytorch_tanh";

// The encoder's keys as the configuration and the processor file of a folder. Error kModel naming
// file and key.
void gguf_llava(GgufEncoder& encoder, Json& config, Json& processor);

}  // namespace tessera
