// How the weights of a language model are kept unless something else is asked for.
#pragma once

#include "engine/core/dtype.h"
#include "engine/families/open_model.h"

namespace tessera {

// The type that the layers' matrices have in the files: bf16 or f32; of matrices in blocks q4 where
// all are Q4_0, else q8, which changes less than their own rounding did.
DType text_storage(const OpenedModel& model);

}  // namespace tessera
