#include "apps/cli/sampling_flags.h"

#include <CLI/CLI.hpp>

#include "apps/cli/setting_flags.h"
#include "engine/sampling/sampling_settings.h"

namespace tessera {

void add_sampling_flags(CLI::App& app, Door door, SettingValues& sampling) {
  add_setting_flags(app, sampling_group(), door, sampling,
                    door == Door::kCaption ? "Sampling (default: greedy)"
                                           : "Sampling (default: the model's own)");
}

}  // namespace tessera
