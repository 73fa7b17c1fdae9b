// The border of the library: errors of the project leave as public ones.
#pragma once

#include <new>
#include <utility>

#include <tessera/error.h>

#include "engine/core/error.h"

namespace tessera {

namespace api = tessera_v0;

api::Error public_error(const ErrorInfo& info);
[[noreturn]] void throw_no_memory();

// Runs `call`; an error of the project leaves as the public one.
template <typename Call>
decltype(auto) guarded(Call&& call) {
  try {
    return std::forward<Call>(call)();
  } catch (const Error& error) {
    throw public_error(error.info());
  } catch (const std::bad_alloc&) {
    throw_no_memory();
  }
}

}  // namespace tessera
