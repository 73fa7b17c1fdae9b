// What the rows of one picture may be in a pass.
#pragma once

#include <cstdint>

namespace tessera {

enum class PassShape : std::uint8_t {
  kLine,  // each behind the one before
  kTree,  // candidates that branch
  kRows,  // one token of each row of codes
};

}  // namespace tessera
