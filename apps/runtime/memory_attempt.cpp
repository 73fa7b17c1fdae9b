// The boundary of one attempt.
#include "apps/runtime/memory_attempt.h"

#include <new>

namespace tessera {

std::optional<ErrorInfo> memory_failure(FunctionRef<void()> attempt, const std::string& where) {
  try {
    attempt();
    return std::nullopt;
  } catch (const Error& error) {
    if (error.info().kind != ErrorKind::kMemory) throw;
    return error.info();
  } catch (const std::bad_alloc&) {
    return ErrorInfo{.kind = ErrorKind::kMemory,
                     .code = "E_MEMORY",
                     .where = where,
                     .expected = "memory",
                     .found = "none left",
                     .hint = "try --dtype bf16 or a smaller --batch-size"};
  }
}

}  // namespace tessera
