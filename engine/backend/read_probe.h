// What benchmarks ask of a device next to its ops: a kernel that does nothing but read, to divide
// by, and which of its vendor's libraries it goes without.
#pragma once

#include "engine/backend/backend.h"

namespace tessera {

// Enqueues sums [kReadProbeSums] f32 of x, which is f32, 16-byte aligned and a multiple of four
// numbers. False where the backend has no such kernel.
inline constexpr std::int64_t kReadProbeSums = 4096;
bool read_probe(Backend& backend, ConstTensorView x, TensorView sums);

// Libraries by name that a CUDA device would use and did not find, with the reason; empty for other
// devices and where nothing is missing.
std::vector<std::pair<std::string, std::string>> missing_libraries(Backend& backend);

}  // namespace tessera
