// What the host reads of a key-value cache, for methods that look at keys and values themselves.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/backend/backend.h"

namespace tessera {

// Rows of a cached table [capacity, kv heads, stored], one after the other, as f32. Waits for the
// device.
std::vector<float> cached_rows(Backend& backend, ConstTensorView table,
                               std::span<const std::int64_t> rows);

}  // namespace tessera
