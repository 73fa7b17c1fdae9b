// What the kernels of attention.cu work on, and the merge of splits that were summed apart: by the
// last block of them, or by a kernel of its own. Included by attention.cu only.
#pragma once

#include "engine/backend/cuda/simt.cuh"
#include "engine/core/index.h"

namespace tessera::cuda {
namespace {

constexpr int kFewEntries = 4;  // of a tile whose splits the last of its blocks merges

// Query entries, a row and a head each, that share one key head and are computed together.
struct Tile {
  const void *keys, *values;
  const float* bias;          // or null
  std::int64_t listed_at;     // of the segment's list among all of them
  std::int32_t listed_from;   // keys from here on are listed
  std::int32_t row_begin;     // of the segment
  std::int32_t first, count;  // entries: row * group + head of the group
  std::int32_t first_visible, causal;
  std::int32_t split_keys;
  std::int32_t aligned;  // rows of a head are whole pieces of 16 bytes
  std::int64_t bias_row_step, bias_head_step;
};

struct Work {
  const float* q;
  float *out, *log_sum;  // log_sum or null
  float scale;
  const Tile* tiles;
  const std::int32_t* listed;
  int heads, kv_heads, group, dim;
  int splits;                    // places of a row and head in scratch; 0: a block takes all splits
  int slices;                    // of the dimensions of the output
  float *sums, *peaks, *totals;  // [rows, heads, splits, dim], [rows, heads, splits]
  unsigned* tickets;  // for every tile and key head, where the last block of them merges the splits
};

// Of an entry: how many keys it sees, 0 past the last entry.
__device__ inline int visible_keys(const Tile& tile, int group, int entry) {
  if (entry >= tile.count) return 0;
  return tile.first_visible + (tile.causal != 0 ? (tile.first + entry) / group + 1 : 0);
}

// Tiles and key heads stand in one axis of the grid, as there may be many of both.
__device__ inline int tile_of_block(const Work& work) {
  return static_cast<int>(blockIdx.x) / work.kv_heads;
}
__device__ inline int key_head_of_block(const Work& work) {
  return static_cast<int>(blockIdx.x) % work.kv_heads;
}

__device__ inline std::int64_t row_and_head(const Tile& tile, const Work& work, int entry) {
  const int place = tile.first + entry;
  const std::int64_t row = tile.row_begin + place / work.group;
  return row * work.heads + key_head_of_block(work) * work.group + place % work.group;
}

// Where the bias of an entry's keys begins.
__device__ inline std::int64_t bias_at(const Tile& tile, const Work& work, int entry) {
  const int place = tile.first + entry;
  const int head = key_head_of_block(work) * work.group + place % work.group;
  return place / work.group * tile.bias_row_step + head * tile.bias_head_step;
}

// What a sum relative to one maximum is multiplied by to be relative to a larger one.
__device__ inline float factor_to(float larger, float from) {
  return from == larger ? 1.0f : expf(from - larger);
}

// A maximum and a sum of exponentials relative to it, over some splits in order.
struct Running {
  float peak, total;
};
struct Factors {
  float old, added;
};
__device__ inline Factors merge(Running& running, float peak, float total) {
  const float larger = peak > running.peak ? peak : running.peak;
  const Factors factors = {factor_to(larger, running.peak), factor_to(larger, peak)};
  running.total = fmaf(total, factors.added, running.total * factors.old);
  running.peak = larger;
  return factors;
}
__device__ inline float merged(float sum, float added, const Factors& factors) {
  return fmaf(added, factors.added, sum * factors.old);
}

__device__ inline void write_log_sum(const Work& work, std::int64_t at, const Running& running) {
  if (work.log_sum == nullptr) return;
  work.log_sum[at] = to_float(running.peak + log(double{running.total}));
}

// The splits that `count` entries from `first` on see, merged in order. A thread takes four
// dimensions of an entry, whose sums of the next splits are on their way while it weighs.
template <int kThreads>
__device__ inline void merge_entries(const Work& work, const Tile& tile, int first, int count) {
  constexpr int kDims = 4;
  const int parts = (work.dim + kDims - 1) / kDims;
  for (int i = static_cast<int>(threadIdx.x); i < count * parts; i += kThreads) {
    const int entry = first + i / parts, begin = i % parts * kDims;
    const int visible = visible_keys(tile, work.group, entry);
    if (visible == 0) continue;
    const int splits = (visible + tile.split_keys - 1) / tile.split_keys;
    const std::int64_t at = row_and_head(tile, work, entry);
    const std::int64_t place = at * work.splits;
    const int dims = work.dim - begin < kDims ? work.dim - begin : kDims;
    const float* sums = work.sums + place * work.dim + begin;
    Running running{work.peaks[place], work.totals[place]};
    float sum[kDims];
#pragma unroll
    for (int d = 0; d < kDims; ++d) sum[d] = d < dims ? sums[d] : 0.0f;
#pragma unroll 4
    for (int split = 1; split < splits; ++split) {
      const float* added = sums + std::int64_t{split} * work.dim;
      const Factors factors = merge(running, work.peaks[place + split], work.totals[place + split]);
#pragma unroll
      for (int d = 0; d < kDims; ++d) {
        if (d < dims) sum[d] = merged(sum[d], added[d], factors);
      }
    }
#pragma unroll
    for (int d = 0; d < kDims; ++d) {
      if (d < dims) work.out[at * work.dim + begin + d] = sum[d] / running.total;
    }
    if (begin == 0) write_log_sum(work, at, running);
  }
}

constexpr int kMergeThreads = 64;

// Grid: tiles * key heads, entries.
__global__ void merge_splits(Work work) {
  begin_after_previous();
  const Tile tile = work.tiles[tile_of_block(work)];
  merge_entries<kMergeThreads>(work, tile, static_cast<int>(blockIdx.y), 1);
}

}  // namespace
}  // namespace tessera::cuda
