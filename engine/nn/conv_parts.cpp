#include "engine/nn/conv_parts.h"

#include <utility>

namespace tessera {

namespace {

ConvPart conv_part(std::string name, int c_in, int c_out, int kernel) {
  return {std::move(name), false, false, c_in, c_out, kernel};
}
ConvPart norm_part(std::string name, int channels) {
  return {std::move(name), true, false, channels, 0, 0};
}

std::vector<ConvPart> plain_parts(const ConvStep& step) {
  const int in = step.c_in;
  const int out = step.c_out;
  switch (step.kind) {
    case ConvStepKind::kConv1:
      return {conv_part(step.name, in, out, 1)};
    case ConvStepKind::kConv3:
      return {conv_part(step.name, in, out, 3)};
    case ConvStepKind::kDown:
    case ConvStepKind::kUp:
      return {conv_part(step.name, in, out, 3)};
    case ConvStepKind::kNorm:
      return {norm_part(step.name, in)};
    case ConvStepKind::kNormConv3:
      return {norm_part(step.norm_name, in), conv_part(step.name, in, out, 3)};
    case ConvStepKind::kRes: {
      std::vector<ConvPart> parts = {
          norm_part(step.name + ".norm1", in), conv_part(step.name + ".conv1", in, out, 3),
          norm_part(step.name + ".norm2", out), conv_part(step.name + ".conv2", out, out, 3)};
      if (in != out) parts.push_back(conv_part(step.name + ".nin_shortcut", in, out, 1));
      return parts;
    }
    case ConvStepKind::kAttention:
      return {norm_part(step.name + ".norm", in), conv_part(step.name + ".q", in, in, 1),
              conv_part(step.name + ".k", in, in, 1), conv_part(step.name + ".v", in, in, 1),
              conv_part(step.name + ".proj_out", in, in, 1)};
  }
  return {};
}

}  // namespace

std::vector<ConvPart> parts_of(const ConvStep& step, const GroupNormOptions& norm) {
  std::vector<ConvPart> parts;
  for (ConvPart& part : plain_parts(step)) {
    if (!part.is_norm || norm.conditioned_by == 0) {
      parts.push_back(std::move(part));
      continue;
    }
    parts.push_back(norm_part(part.name + ".norm_layer", part.c_in));
    for (const char* name : {".conv_y", ".conv_b"}) {
      parts.push_back(conv_part(part.name + name, norm.conditioned_by, part.c_in, 1));
      parts.back().conditions = true;
    }
  }
  return parts;
}

Shape weight_shape(const ConvPart& part) {
  if (part.is_norm) return {part.c_in};
  return {part.c_out, part.c_in, part.kernel, part.kernel};
}
Shape bias_shape(const ConvPart& part) { return {part.is_norm ? part.c_in : part.c_out}; }

std::vector<TensorSpec> conv_step_tensors(std::span<const ConvStep> steps,
                                          const GroupNormOptions& norm) {
  std::vector<TensorSpec> tensors;
  for (const ConvStep& step : steps) {
    for (const ConvPart& part : parts_of(step, norm)) {
      tensors.push_back({part.name + ".weight", weight_shape(part)});
      tensors.push_back({part.name + ".bias", bias_shape(part)});
    }
  }
  return tensors;
}

int conv_steps_factor(std::span<const ConvStep> steps) {
  int factor = 1;
  for (const ConvStep& step : steps) {
    if (step.kind == ConvStepKind::kDown || step.kind == ConvStepKind::kUp) factor *= 2;
  }
  return factor;
}

}  // namespace tessera
