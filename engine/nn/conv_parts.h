// What steps are made of, as names and shapes alone: needs no backend.
#pragma once

#include <string>
#include <vector>

#include "engine/nn/conv_blocks.h"

namespace tessera {

// What a step is made of: convolutions and norms, in the order in which they are used. The two
// convolutions that condition a norm follow it.
struct ConvPart {
  std::string name;
  bool is_norm = false;
  bool conditions = false;
  int c_in = 0;  // of a norm: its channels
  int c_out = 0;
  int kernel = 0;
};
std::vector<ConvPart> parts_of(const ConvStep& step, const GroupNormOptions& norm);
Shape weight_shape(const ConvPart& part);
Shape bias_shape(const ConvPart& part);

}  // namespace tessera
