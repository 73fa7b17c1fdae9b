// Sampling flags; what stays open is the model's preset.
#include "apps/cli/sampling_flags.h"

#include <CLI/CLI.hpp>

#include "apps/cli/flags.h"
#include "apps/pipeline/generate_pipeline.h"

namespace tessera {

void add_sampling_flags(CLI::App& app, SamplingChoice& sampling) {
  const std::string group = "Sampling (default: the model's own)";
  number_flag(app, "--temp", sampling.temperature, 0, kMaxTemperature, "temperature; 0 = greedy")
      ->group(group);
  integer_flag(app, "--top-k", sampling.top_k, 0, kMaxTopK, "keep the k likeliest; 0 = all")
      ->group(group);
  number_flag(app, "--top-p", sampling.top_p, kMinMass, 1, "keep the likeliest that hold this mass")
      ->group(group);
  number_flag(app, "--min-p", sampling.min_p, 0, 1, "keep what is this fraction as likely")
      ->group(group);
  number_flag(app, "--typical", sampling.typical, kMinMass, 1, "keep the most typical of this mass")
      ->group(group);
  number_flag(app, "--cfg-scale", sampling.guidance, 1, kMaxGuidance,
              "classifier-free guidance; 1 = off")
      ->group(group);
}

}  // namespace tessera
