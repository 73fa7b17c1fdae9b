// What ops share: checks of their arguments, and how they are run.
#pragma once

#include "engine/backend/backend.h"
#include "engine/core/cached_type.h"
#include "engine/core/storage.h"

namespace tessera {

inline void expects_rank(const ConstTensorView& view, int rank, const char* what) {
  expects(view.shape.rank() == rank, what);
}

inline void expects_f32(const Backend& backend, const ConstTensorView& view, const char* what) {
  expects(view.dtype == DType::kF32 && view.device == backend.device() &&
              (view.data != nullptr || view.shape.elements() == 0),
          what);
}

inline void expects_vector(const Backend& backend, const ConstTensorView& view, std::int64_t n,
                           const char* what) {
  expects_f32(backend, view, what);
  expects(view.shape == Shape{n}, what);
}

// A table: of any type that numbers are kept in.
inline void expects_kept(const Backend& backend, const ConstTensorView& view, const char* what) {
  expects(is_storage(view.dtype) && view.device == backend.device(), what);
}

// Keys or values: of any type of cached_types() that the device has.
inline void expects_cached(const Backend& backend, const ConstTensorView& view, const char* what) {
  const CachedType* const type = find_cached(view.dtype);
  expects(type != nullptr && backend.caches(type->type) && view.device == backend.device(), what);
}

namespace ops {

// Checks an op and runs it.
template <Op Args>
void run(Backend& backend, const Args& op) {
  op.check(backend);
  backend.run(op);
}

}  // namespace ops
}  // namespace tessera
