// One weight out of a checkpoint, checked for everything a network needs of it.
#pragma once

#include <string>

#include "engine/checkpoint/checkpoint.h"
#include "engine/core/storage.h"  // widened()

namespace tessera {

// The tensor `name`. Error kModel naming file and tensor if it is missing (E_WEIGHT_MISSING), has
// another shape (E_WEIGHT_SHAPE), is not of a weight's type (E_WEIGHT_DTYPE), or holds a NaN or an
// infinity (E_WEIGHT_NOT_FINITE, with the first index and the count).
ConstTensorView checked_weight(const Checkpoint& checkpoint, const std::string& name,
                               const Shape& shape);

}  // namespace tessera
