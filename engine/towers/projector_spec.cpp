// Names and shapes of a projector's tensors.
#include "engine/towers/projector_spec.h"

namespace tessera {

std::vector<TensorSpec> projector_tensors(const ProjectorSpec& spec) {
  std::vector<TensorSpec> out;
  if (!spec.norm.empty()) {
    out.push_back({spec.prefix + spec.norm + ".weight", {spec.in_width}});
    if (spec.norm_kind == VitNorm::kLayer) {
      out.push_back({spec.prefix + spec.norm + ".bias", {spec.in_width}});
    }
  }
  std::int64_t width = spec.joined_width();
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    const std::string stem = spec.prefix + spec.layers[i];
    out.push_back({stem + ".weight", {spec.widths[i], width}});
    if (spec.bias) out.push_back({stem + ".bias", {spec.widths[i]}});
    width = spec.widths[i];
  }
  return out;
}

}  // namespace tessera
