// Weights that were cut for several devices: each file has a part of every matrix.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "engine/core/tensor.h"

namespace tessera {

enum class PartAxis : std::uint8_t {
  kWhole,    // every file has all of it
  kRows,     // rows of one part after those of the other
  kColumns,  // each row has numbers of one part after those of the other
  kOwnRow,   // the vector of a part is a row
};
// By the name of a tensor.
using PartRule = PartAxis (*)(std::string_view name);

// Of parts of one tensor in the order of their files, which messages name. Error kModel
// (E_CKPT_PARTS): types or shapes that differ, numbers of a whole one that do.
Shape joined_shape(PartAxis axis, std::span<const ConstTensorView> parts, const std::string& name,
                   std::span<const std::string> files);
// The bytes of the joined tensor; parts are dense.
void join_parts(PartAxis axis, std::span<const ConstTensorView> parts, std::byte* out);

}  // namespace tessera
