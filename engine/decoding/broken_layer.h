// Where the first broken number of a stream comes from, for the error that says so.
#pragma once

#include <string>

#include "engine/core/function_ref.h"
#include "engine/decoding/model_pass.h"

namespace tessera {

// Runs passes until `add_rows`, which adds the rows of the next one, adds none, and names the first
// layer that made a broken number of them. Only failures pay for it, also with memory.
std::string broken_layer(ModelPass& pass, FunctionRef<void()> add_rows);

}  // namespace tessera
