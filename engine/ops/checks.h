// What the checks in front of backend calls share.
#pragma once

#include "engine/backend/backend.h"

namespace tessera::ops {

inline void expects_rank(const ConstTensorView& view, int rank, const char* what) {
  expects(view.shape.rank() == rank, what);
}

inline void expects_f32(Backend& backend, const ConstTensorView& view, const char* what) {
  expects(view.dtype == DType::kF32 && view.device == backend.device() &&
              (view.data != nullptr || view.shape.elements() == 0),
          what);
}

inline void expects_vector(Backend& backend, const ConstTensorView& view, std::int64_t n,
                           const char* what) {
  expects_f32(backend, view, what);
  expects(view.shape == Shape{n}, what);
}

inline bool is_storage(DType dtype) { return dtype == DType::kF32 || dtype == DType::kBF16; }

}  // namespace tessera::ops
