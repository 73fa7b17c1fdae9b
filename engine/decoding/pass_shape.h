// What the rows of one stream may be in a pass.
#pragma once

#include <cstdint>

namespace tessera {

enum class PassShape : std::uint8_t {
  kLine,   // each after the one before
  kTree,   // candidates that branch
  kRows,   // one token of each row of codes
  kBlock,  // a block whose rows see one another; each gives a token of the next one
};

}  // namespace tessera
