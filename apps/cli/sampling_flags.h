// Flags that shape the law a picture is drawn from, for every sub-command that paints.
#pragma once

namespace CLI {
class App;
}

namespace tessera {

struct SamplingChoice;
void add_sampling_flags(CLI::App& app, SamplingChoice& sampling);

}  // namespace tessera
