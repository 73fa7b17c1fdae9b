// An error that names a file of a job.
#pragma once

#include <filesystem>
#include <string>
#include <utility>

#include "engine/core/error.h"

namespace tessera {

[[noreturn]] inline void refuse_file(ErrorKind kind, const char* code,
                                     const std::filesystem::path& file, std::string expected,
                                     std::string found, std::string hint = "") {
  throw Error({.kind = kind,
               .code = code,
               .file = file.string(),
               .expected = std::move(expected),
               .found = std::move(found),
               .hint = std::move(hint)});
}

}  // namespace tessera
