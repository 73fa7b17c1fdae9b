// Flags that shape the distribution that tokens are sampled from; what stays open is the model's
// preset, of texts greedy.
#pragma once

#include "engine/core/setting.h"

namespace CLI {
class App;
}

namespace tessera {

void add_sampling_flags(CLI::App& app, Door door, SettingValues& sampling);

}  // namespace tessera
