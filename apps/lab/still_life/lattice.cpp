#include "apps/lab/still_life/lattice.h"

#include "engine/core/philox.h"

namespace tessera::still {

Lattice::Lattice(std::uint64_t seed) : values_(kSide * kSide * kSide) {
  const auto key = philox_key(seed, 3);
  for (std::uint32_t i = 0; i < values_.size(); i += 16) {
    const PhiloxQuad quad =
        philox4x32_quad({0, 0, static_cast<std::uint32_t>(Purpose::kScene), i / 4}, key);
    for (std::uint32_t lane = 0; lane < 16; ++lane) values_[i + lane] = uniform_open(quad[lane]);
  }
}

}  // namespace tessera::still
