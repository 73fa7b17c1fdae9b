// What the blocks that verify rows have in common: sums in the order of engine/core/row_tree.h, the
// best of scored ids, and the key at which masses from the top down reach a bound. A block has as
// many threads as a row has lanes, a power of two from 32 to 512, and thread t walks the ids
// t, t + threads, … in ascending order. Device code only; every thread of the block calls.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "engine/backend/cuda/simt.cuh"
#include "engine/core/row_tree.h"

namespace tessera::cuda {

using Word = unsigned long long;

constexpr int kVerifyLanes = static_cast<int>(kRowLanes);
constexpr int kVerifyWarps = kVerifyLanes / kWarp;
// Bits of the key that one step of a selection looks at: few where a row is short, else so many
// that neighbouring ids seldom meet in a bin.
constexpr int kShortBits = 8, kLongBits = 11, kLongRow = 1024;
constexpr int kSelectBins = 1 << kLongBits;

struct VerifyScratch {
  double lanes[3][kVerifyLanes];
  std::uint32_t low[kSelectBins], high[kSelectBins];  // masses
  Word words[kVerifyWarps];
  double scores[kVerifyWarps];
  int ids[kVerifyWarps];
  // Of the selection under way.
  int reached, bin;
  Word before, at;
};

__device__ inline int verify_threads() { return static_cast<int>(blockDim.x); }
__device__ inline int verify_thread() { return static_cast<int>(threadIdx.x); }

// The largest word of the block, in every thread.
__device__ inline Word largest_word(Word value, VerifyScratch& s) {
  value = warp_max(value);
  const int warps = verify_threads() / kWarp;
  if (warps == 1) return value;
  if (verify_thread() % kWarp == 0) s.words[verify_thread() / kWarp] = value;
  __syncthreads();
  for (int i = 0; i < warps; ++i) value = s.words[i] > value ? s.words[i] : value;
  __syncthreads();
  return value;
}

// N sums over the block at once, each thread's part being its lane.
template <int N>
__device__ inline void fold_lanes(double (&value)[N], VerifyScratch& s) {
  const int t = verify_thread();
  for (int k = 0; k < N; ++k) s.lanes[k][t] = value[k];
  __syncthreads();
  for (int half = verify_threads() / 2; half >= kWarp; half /= 2) {
    if (t < half) {
      for (int k = 0; k < N; ++k) s.lanes[k][t] += s.lanes[k][t + half];
    }
    __syncthreads();
  }
  if (t < kWarp) {
    for (int k = 0; k < N; ++k) {
      double lane = s.lanes[k][t];
      // Lanes that have no other half any more add what nobody reads.
      for (int half = kWarp / 2; half > 0; half /= 2)
        lane += __shfl_down_sync(kAllLanes, lane, half);
      if (t == 0) s.lanes[k][0] = lane;
    }
  }
  __syncthreads();
  for (int k = 0; k < N; ++k) value[k] = s.lanes[k][0];
  __syncthreads();
}

// The id with the largest score of the block, the lowest one on a tie, in every thread.
__device__ inline int best_scored(double score, int id, VerifyScratch& s) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    const double other = __shfl_xor_sync(kAllLanes, score, offset);
    const int other_id = __shfl_xor_sync(kAllLanes, id, offset);
    if (other > score || (other == score && other_id < id)) {
      score = other;
      id = other_id;
    }
  }
  const int warps = verify_threads() / kWarp;
  if (warps == 1) return id;
  if (verify_thread() % kWarp == 0) {
    s.scores[verify_thread() / kWarp] = score;
    s.ids[verify_thread() / kWarp] = id;
  }
  __syncthreads();
  for (int i = 0; i < warps; ++i) {
    if (s.scores[i] > score || (s.scores[i] == score && s.ids[i] < id)) {
      score = s.scores[i];
      id = s.ids[i];
    }
  }
  __syncthreads();
  return id;
}

// Where masses, largest key first, reach a bound.
struct Selected {
  bool reached = false;   // all together do
  std::uint32_t key = 0;  // of the ids among which they do
  Word rest = 0;          // what those before left of the bound, at least 1
  Word at = 0;            // the mass of the ids with this key
};

__device__ inline Word mass_in(const VerifyScratch& s, int bin) {
  return Word{s.high[bin]} << 32 | s.low[bin];
}
// In halves with a carry: devices add 32 bits of shared memory at once, 64 by trial.
__device__ inline void add_mass(VerifyScratch& s, int bin, Word mass) {
  const auto low = static_cast<std::uint32_t>(mass);
  const std::uint32_t before = atomicAdd(&s.low[bin], low);
  const std::uint32_t high =
      static_cast<std::uint32_t>(mass >> 32) + (before + low < before ? 1u : 0u);
  if (high != 0) atomicAdd(&s.high[bin], high);
}

// The bin in which the masses from the last of `bins` down reach `rest`, by the first warp.
__device__ inline void find_bin(int bins, Word rest, VerifyScratch& s) {
  const int each = bins / kWarp, lane = verify_thread(), top = bins - 1 - lane * each;
  Word own = 0;
  for (int i = 0; i < each; ++i) own += mass_in(s, top - i);
  Word until = own;
  for (int offset = 1; offset < kWarp; offset *= 2) {
    const Word lower = __shfl_up_sync(kAllLanes, until, offset);
    if (lane >= offset) until += lower;
  }
  if (lane == kWarp - 1) s.reached = until >= rest ? 1 : 0;
  Word before = until - own;
  if (before >= rest || until < rest) return;
  int bin = top;
  while (before + mass_in(s, bin) < rest) before += mass_in(s, bin--);
  s.bin = bin;
  s.before = before;
  s.at = mass_in(s, bin);
}

// A radix selection from the highest bits of the key down. Keyed has ids: has(id), key(id),
// mass(id). bound >= 1.
template <typename Keyed>
__device__ Selected select_mass(const Keyed& keyed, int ids, Word bound, VerifyScratch& s) {
  const int bits = ids > kLongRow ? kLongBits : kShortBits;
  Selected out;
  out.rest = bound;
  for (int above = 32; above > 0;) {
    const int shift = above > bits ? above - bits : 0, bins = 1 << (above - shift);
    for (int bin = verify_thread(); bin < bins; bin += verify_threads()) s.low[bin] = s.high[bin] = 0;
    __syncthreads();
    for (int id = verify_thread(); id < ids; id += verify_threads()) {
      if (!keyed.has(id)) continue;
      const std::uint32_t key = keyed.key(id);
      if (above < 32 && key >> above != out.key) continue;
      add_mass(s, static_cast<int>(key >> shift & static_cast<std::uint32_t>(bins - 1)),
               keyed.mass(id));
    }
    __syncthreads();
    if (verify_thread() < kWarp) find_bin(bins, out.rest, s);
    __syncthreads();
    if (s.reached == 0) return out;
    out.key = out.key << (above - shift) | static_cast<std::uint32_t>(s.bin);
    out.rest -= s.before;
    out.at = s.at;
    above = shift;
  }
  out.reached = true;
  return out;
}

}  // namespace tessera::cuda
