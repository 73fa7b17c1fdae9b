// The error of an item whose logits cannot be verified.
#pragma once

#include <cmath>
#include <string>

#include "engine/core/error.h"

namespace tessera {

inline ErrorInfo unsound_logit(std::string where, float value) {
  return {.kind = ErrorKind::kGeneral,
          .code = "E_LOGITS",
          .where = std::move(where),
          .expected = "a finite logit below 2^100",
          .found = value != value      ? "NaN"
                   : std::isinf(value) ? "infinity"
                                       : std::to_string(value)};
}

}  // namespace tessera
