// Work that may find too little memory: whoever starts it tries less at once then.
#pragma once

#include <optional>
#include <string>

#include "engine/core/error.h"
#include "engine/core/function_ref.h"

namespace tessera {

// Runs `attempt`. Empty when it came to its end, else what was missing when memory did not last:
// Error kMemory, or std::bad_alloc as E_MEMORY at `where`. Any other error leaves it.
std::optional<ErrorInfo> memory_failure(FunctionRef<void()> attempt, const std::string& where);

}  // namespace tessera
