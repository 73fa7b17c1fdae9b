// Attention of many query rows at once, by tensor cores: for the fast mode, where the factors of
// products are bf16 anyway.
#pragma once

#include "engine/backend/cuda/cuda_backend.h"
#include "engine/ops/attention.h"

namespace tessera::cuda {

// From so many rows of a segment on. Not measured: below, tiles of 64 queries would be half empty
// and the exact kernel reads the keys as seldom.
constexpr std::int64_t kWideQueries = 64;

// Whether a segment may be computed so: not in the deterministic mode, no listed keys, heads of
// up to 256 dimensions in fours, keys of bf16; or heads of up to 128 and keys of f32, where
// CudaOptions::tf32 allows products of f32 to be rounded. It knows shapes alone, so that a recorded
// pass always goes the same way.
bool goes_wide(const CudaOptions& options, const AttentionArgs& args,
               const AttentionSegment& segment);

// Online softmax in tiles (Dao 2023, FlashAttention-2, section 3.1) over args.segments, all of
// which go wide. With keys of bf16, queries and weights are rounded to bf16; with keys of f32 all
// factors are taken as two bf16 numbers, 16 bits, where tf32 has 11. Sums are f32. A query row
// does not see another one, but a NaN among the values of a segment shows in all rows of a tile.
void wide_attention(CudaBackend& backend, const AttentionArgs& args);

}  // namespace tessera::cuda
