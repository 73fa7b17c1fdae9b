// A window that slides over a cached stream after attention sinks (Xiao et al. 2024, "Efficient
// streaming language models with attention sinks", section 3.2): the first rows stay, rows after
// them go, and what is left counts its positions within the cache.
#pragma once

#include <cstdint>

#include "engine/cache/kv_cache.h"
#include "engine/model/transformer.h"

namespace tessera {

// Takes rows [first, first + count) out of a sequence that was not cut. Every layer's keys after
// them are turned from their positions to those `count` lower, computed in f32 and stored in the
// cache's type; values are moved as they are. Keys and values keep what they saw of the rows that
// went: in layer 0 nothing, as a row of it is made of its own token. The rotary embedding has one
// axis. Allocates its scratch. Error kMemory.
void slide_cache(const Transformer& transformer, KvCache& cache, std::int64_t sequence,
                 std::int64_t first, std::int64_t count);

}  // namespace tessera
