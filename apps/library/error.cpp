#include <tessera/error.h>

#include "apps/library/guard.h"

namespace tessera {

namespace {

ErrorInfo info_of(const api::ErrorFacts& facts) {
  return {static_cast<ErrorKind>(facts.kind),
          facts.code,
          facts.file,
          facts.where,
          facts.expected,
          facts.found,
          facts.hint};
}

}  // namespace

api::Error public_error(const ErrorInfo& info) {
  return api::Error({static_cast<api::ErrorKind>(info.kind), info.code, info.file, info.where,
                     info.expected, info.found, info.hint});
}

void throw_no_memory() {
  throw api::Error({.kind = api::ErrorKind::kMemory,
                    .code = "E_MEMORY",
                    .expected = "enough memory",
                    .found = "none left",
                    .hint = "Runtime::plan() says what a request needs"});
}

}  // namespace tessera

namespace tessera_v0 {

Error::Error(ErrorFacts facts)
    : std::runtime_error(tessera::format_error(tessera::info_of(facts))),
      facts_(std::make_shared<const ErrorFacts>(std::move(facts))) {}
Error::Error(const Error&) noexcept = default;
Error& Error::operator=(const Error&) noexcept = default;
Error::~Error() = default;

}  // namespace tessera_v0
