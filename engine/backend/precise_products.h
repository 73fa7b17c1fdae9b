// Whether products with weights of blocks round their inputs.
#pragma once

#include "engine/backend/backend.h"

namespace tessera {

// From now on products with weights of blocks take f32 inputs times the numbers of the blocks, where
// they else round inputs to 8 bits. Weights that are packed already serve as they are. False where
// the device has no such products, and keeps doing what it did.
bool set_precise(Backend& backend);

}  // namespace tessera
