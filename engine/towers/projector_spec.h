// Plain data that describes a projector, and the list of tensors it has.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/towers/vit_spec.h"

namespace tessera {

struct ProjectorSpec {
  std::string prefix;         // before every name
  std::int64_t in_width = 0;  // columns of the encoder's features
  std::int64_t cell = 1;      // places a side that become one row
  std::string norm;           // stem of a norm over each patch before joining; empty = none
  VitNorm norm_kind = VitNorm::kLayer;
  float norm_eps = 1e-6f;
  std::vector<std::string> layers;   // stems, in order
  std::vector<std::int64_t> widths;  // outputs of each
  bool bias = true;
  VitActivation activation = VitActivation::kGelu;  // between layers; not gated

  std::int64_t joined_width() const { return cell * cell * in_width; }
  std::int64_t out_width() const { return widths.back(); }
};

std::vector<TensorSpec> projector_tensors(const ProjectorSpec& spec);

}  // namespace tessera
