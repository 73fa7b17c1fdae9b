// The Haar wavelet over three axes (Haar 1910), as Cosmos' video tokenizer scales it: half of it
// undoes itself exactly. Host memory, f32.
#pragma once

#include "engine/core/tensor.h"

namespace tessera {

// [T, H, W, C] of even extents -> [T/2, H/2, W/2, 8 C]. Of each 2x2x2 cell the mean of its
// elements, signed: band 4 t + 2 h + w holds differences along those axes whose bit is set, in its
// C elements the channels.
Tensor haar(ConstTensorView in);
// [T, H, W, 8 C] -> [2 T, 2 H, 2 W, C].
Tensor inverse_haar(ConstTensorView in);

}  // namespace tessera
