// What the matrices of a model's transformer are for: which of them are packed as matrices of
// layers, as tables and as output layers (weight_loader.h).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "engine/checkpoint/checkpoint.h"
#include "engine/families/model_spec.h"

namespace tessera {

enum class WeightRole : std::uint8_t {
  kTable,      // rows that are looked up
  kTiedTable,  // the same, and an output layer
  kHead,       // output layers
  kAttention,  // queries, keys, values and outputs
  kFeedForward,
};
std::string_view weight_role_name(WeightRole role);  // "table", "head", "attention", "feed-forward"

// By name, those that the checkpoint has.
using WeightRoles = std::map<std::string, WeightRole, std::less<>>;
WeightRoles weight_roles(const ModelSpec& spec, const Checkpoint& weights);

// The kept type of matrices that a file has in blocks: q4 where all of the layers are Q4_0, else
// q8, which changes less than their own rounding did. Nothing where none is in blocks.
std::optional<DType> stored_in_blocks(const ModelSpec& spec, const Checkpoint& weights);

}  // namespace tessera
