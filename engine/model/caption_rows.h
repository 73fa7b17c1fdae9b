// A prompt made of a text encoder's rows: two matrices with a GELU between them, and learned rows
// in place of the encoder's for the branch without a text.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/backend/backend.h"
#include "engine/core/tensor.h"
#include "engine/nn/linear.h"

namespace tessera {

struct CaptionWeights {
  Linear fc1;            // [D, C], no bias
  Linear fc2;            // [D, D], no bias
  Tensor unconditional;  // [R, C] f32
};

class CaptionRows {
 public:
  CaptionRows(Backend& backend, CaptionWeights weights);

  // [T, C] f32 on the device -> prompt rows [T, D] there.
  Tensor prompt(ConstTensorView features) const;
  // The same of the last `rows` of the learned rows, 1 to R. Those before stand where a shorter
  // text has padding, which nobody sees.
  Tensor unconditional(std::int64_t rows) const;

  // Of R rows of C numbers, for a model D wide.
  static std::size_t bytes(std::int64_t rows, std::int64_t width, std::int64_t model_width,
                           const Backend& backend, DType storage);

 private:
  Backend* backend_;
  CaptionWeights weights_;
};

}  // namespace tessera
