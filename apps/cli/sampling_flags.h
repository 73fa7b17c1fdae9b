// Flags that shape the distribution that tokens are sampled from; what stays open is the model's
// preset, of texts greedy.
#pragma once

#include <cstdint>
#include <limits>

#include "engine/core/setting.h"

namespace CLI {
class App;
}

namespace tessera {

// The largest --seed.
inline constexpr std::int64_t kMaxSeed = std::numeric_limits<std::int64_t>::max();

void add_sampling_flags(CLI::App& app, Door door, SettingValues& sampling);

}  // namespace tessera
