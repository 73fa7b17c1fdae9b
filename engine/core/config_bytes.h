#pragma once

#include <cstddef>

namespace tessera {

// The largest config.json that is read, in bytes: Emu3 lists its whole vocabulary there.
inline constexpr std::size_t kConfigBytes = std::size_t{32} << 20;

}  // namespace tessera
