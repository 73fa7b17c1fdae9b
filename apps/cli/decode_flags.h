// Flags that choose a decoding method, for every sub-command that generates.
#pragma once

#include "apps/runtime/generate_request.h"
#include "engine/decoding/decode_settings.h"

namespace CLI {
class App;
}

namespace tessera {

// What was given; the rest comes from the method's own row.
void add_decode_flags(CLI::App& app, Door door, SettingValues& values);

// Method and draft model of the pipeline; `fallback` holds where --decode is not given.
void choose_method(GenerateOptions& options, const SettingValues& values,
                   const DecodeMethod& fallback = {});

}  // namespace tessera
