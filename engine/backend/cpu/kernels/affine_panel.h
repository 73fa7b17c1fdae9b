// Where weights of a quantised form stand in a panel of 16 columns. A unit is 32 inputs, or 256 where
// scales have factors: nibbles of each 32 inputs as in weights of 4 bits (panel_quad), the bits
// beyond four, factors of scales and of offsets [group][16], then scales and offsets, f16 [16].
// Plain data: see kernels.h.
#pragma once

#include "engine/backend/cpu/kernels/kernels.h"
#include "engine/core/quant_form.h"

namespace tessera::cpu {

template <QuantForm kForm>
struct AffinePanel {
  static constexpr int kBlocks = kForm.factors ? 8 : 1;  // of 32 inputs in a unit
  static constexpr int kNibbles = kQuantBlock / 2 * kLanes;
  // A byte holds bits of several inputs, as many apart as go in fours: of all eight fours of a block
  // where there is one bit more, of four of them where there are two.
  static constexpr int kHighBits = kForm.bits > 4 ? kForm.bits - 4 : 0;
  static constexpr int kHigh = kHighBits * 4 * kLanes;
  static constexpr int kHighAt = kBlocks * kNibbles;
  static constexpr int kFactors = kForm.factors ? kForm.groups * kLanes : 0;  // bytes of 32 inputs
  static constexpr int kFactorsAt = kHighAt + kBlocks * kHigh;
  static constexpr int kOffsetFactorsAt = kFactorsAt + kBlocks * kFactors;
  static constexpr int kScalesAt = kOffsetFactorsAt + (kForm.offsets ? kBlocks * kFactors : 0);
  static constexpr int kOffsetsAt = kScalesAt + 2 * kLanes;
  static constexpr int kBytes = kOffsetsAt + (kForm.offsets ? 2 * kLanes : 0);
};

}  // namespace tessera::cpu
