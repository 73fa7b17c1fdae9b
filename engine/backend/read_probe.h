// A kernel that does nothing but read: what a device's memory gives, for benchmarks to divide by.
#pragma once

#include "engine/backend/backend.h"

namespace tessera {

// Enqueues sums [kReadProbeSums] f32 of x, which is f32, 16-byte aligned and a multiple of four
// numbers. False where the backend has no such kernel.
inline constexpr std::int64_t kReadProbeSums = 4096;
bool read_probe(Backend& backend, ConstTensorView x, TensorView sums);

}  // namespace tessera
