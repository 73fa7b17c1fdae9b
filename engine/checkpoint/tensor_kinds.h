// What tensors are when they are not the plain weights of a model.
#pragma once

#include <string>

#include "engine/checkpoint/checkpoint.h"

namespace tessera {

// `found`, what an error found amiss with the tensors, after what they are by their names:
// quantised by GPTQ, AWQ, bitsandbytes or compressed-tensors, scaled FP8, a LoRA adapter, or with a
// prefix that training put there. `found` alone for anything else.
std::string explained(const Checkpoint& checkpoint, std::string found);

}  // namespace tessera
