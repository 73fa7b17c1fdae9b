// What a checkpoint holds against what a part of a model must have.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/checkpoint/checkpoint.h"
#include "engine/nn/vq_spec.h"

namespace tessera {

struct TensorDemand {
  const std::vector<TensorSpec>& tensors;
  std::string of;                                    // "its configuration", for errors
  std::function<bool(const std::string&)> optional;  // may be missing
  std::function<bool(const std::string&)> foreign;   // not looked at where it is not in `tensors`
  std::string file;                                  // for errors; empty: that of the first tensor
};

// Error kModel (E_TENSORS) listing missing, wrong and surplus tensors, the first 10 of each and how
// many there are.
void compare_tensors(const TensorDemand& demand, const Checkpoint& checkpoint);

// Whether a pattern is the name, or with '*' at its end begins it.
bool matches_any(const std::vector<std::string>& patterns, std::string_view name);

}  // namespace tessera
