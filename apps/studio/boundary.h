// What a worker tells of an exception at the boundary of one piece of work: nothing ends a thread.
#pragma once

#include <exception>
#include <new>
#include <string>

#include "engine/core/error.h"

namespace tessera {

// The error's own words; E_STUDIO_MEMORY (kMemory) or E_STUDIO (kGeneral) at `where` for any other
// exception.
inline ErrorInfo info_of(const std::exception& error, std::string where) {
  if (const auto* own = dynamic_cast<const Error*>(&error)) return own->info();
  const bool memory = dynamic_cast<const std::bad_alloc*>(&error) != nullptr;
  return {.kind = memory ? ErrorKind::kMemory : ErrorKind::kGeneral,
          .code = memory ? "E_STUDIO_MEMORY" : "E_STUDIO",
          .where = std::move(where),
          .expected = memory ? "memory for it" : "no trouble",
          .found = memory ? "none left" : escape_for_terminal(error.what())};
}

}  // namespace tessera
