// Whether products with weights of blocks round their inputs.
#pragma once

#include "engine/backend/backend.h"

namespace tessera {

// With `precise` products with weights of blocks from now on take f32 inputs times the numbers of
// the blocks, where they else round inputs to 8 bits. Packed weights serve both. False where the
// device has no such products: it keeps doing what it did.
bool set_precise(Backend& backend, bool precise);

}  // namespace tessera
