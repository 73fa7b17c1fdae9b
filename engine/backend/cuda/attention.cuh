// The kernel of attention.cu: a tile of query entries against the keys of one split or of all.
// Included by attention.cu only.
#pragma once

#include "engine/backend/cuda/attention_merge.cuh"

namespace tessera::cuda {
namespace {

constexpr int kBlockKeys = 64;          // keys between two updates of a running maximum
constexpr int kChunk = 64;              // dimensions in shared memory at once
constexpr float kNothing = -HUGE_VALF;  // the maximum of no score

// Threads of a block that computes this many entries, and chunks in shared memory at once.
template <int kEntries, int kSliceChunks>
struct Plan {
  static constexpr int kThreads = kEntries == 64 ? 256 : kEntries == 16 ? 128 : 64;
  static constexpr int kStages = kEntries == 64 ? 2 : kSliceChunks == 8 ? 3 : 4;
  static constexpr int kKeyThreads = kChunk * kEntries / (4 * kThreads);  // keys of a thread
};

__host__ __device__ constexpr int query_pitch(int dim) { return (dim + 3) / 4 * 4 + 4; }
constexpr int kScorePitch = kBlockKeys + 4;
template <typename T>
constexpr int kPitch = kChunk + 16 / static_cast<int>(sizeof(T));

__device__ inline float4 four(const float* from) { return *reinterpret_cast<const float4*>(from); }
__device__ inline float4 four(const std::uint16_t* from) {
  const uint2 pairs = *reinterpret_cast<const uint2*>(from);
  return {bf16_low(pairs.x), bf16_high(pairs.x), bf16_low(pairs.y), bf16_high(pairs.y)};
}

// Brings keys and values of one key head into a ring of chunks, [64 keys][64 dimensions] each, in
// the order in which they are used: for every block of keys its keys, then its values.
template <typename T, int kThreads, int kStages>
struct Feed {
  static constexpr int kPiece = 16 / static_cast<int>(sizeof(T));
  static constexpr int kStage = kBlockKeys * kPitch<T>;

  const T *keys, *values;
  const std::int32_t* listed;  // of key 0, where that were listed
  std::int64_t stride;         // between keys
  T* ring;
  int listed_from, dim, most;  // keys below `most`
  bool aligned;
  int key_chunks, value_chunks, first_value_chunk;
  int block, end;  // blocks of keys: the next one, and after the last
  int step = 0, asked = 0, taken = 0;

  __device__ std::int64_t row_of(int key) const { return key < listed_from ? key : listed[key]; }

  __device__ void fetch(const T* table, int chunk, T* to) const {
    const int first = block * kBlockKeys;
    const int count = most - first < kBlockKeys ? most - first : kBlockKeys;
    const int width = dim - chunk * kChunk < kChunk ? dim - chunk * kChunk : kChunk;
    const T* from = table + chunk * kChunk;
    const int thread = static_cast<int>(threadIdx.x);
    if (aligned) {
      constexpr int kPieces = kChunk / kPiece;
      for (int i = thread; i < count * kPieces; i += kThreads) {
        const int key = i / kPieces, d = i % kPieces * kPiece;
        if (d < width)
          copy_async(to + key * kPitch<T> + d, from + row_of(first + key) * stride + d);
      }
      return;
    }
    for (int i = thread; i < count * kChunk; i += kThreads) {
      const int key = i / kChunk, d = i % kChunk;
      to[key * kPitch<T> + d] = d < width ? from[row_of(first + key) * stride + d] : T{};
    }
  }

  // Asks for the next chunk, if there is one.
  __device__ void ask() {
    if (block < end) {
      const bool of_keys = step < key_chunks;
      const int chunk = of_keys ? step : first_value_chunk + step - key_chunks;
      fetch(of_keys ? keys : values, chunk, ring + asked * kStage);
      if (++step == key_chunks + value_chunks) {
        step = 0;
        ++block;
      }
    }
    asked = asked + 1 == kStages ? 0 : asked + 1;
    copy_async_commit();
  }

  // The next chunk for all threads; the one before it may be overwritten.
  __device__ const T* take() {
    copy_async_wait<kStages - 2>();
    __syncthreads();
    ask();
    const T* out = ring + taken * kStage;
    taken = taken + 1 == kStages ? 0 : taken + 1;
    return out;
  }
};

// One warp turns the scores of one entry into exp(score - peak) and updates peak and total. Keys
// that the entry does not see get 0 and are never multiplied.
__device__ inline void weigh_scores(float* score, int seen, float& peak, float& total,
                                    float& rescale) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  float value[2], weight[2];
  float largest = kNothing;
  for (int i = 0; i < 2; ++i) {
    const int key = lane + i * kWarp;
    value[i] = key < seen ? score[key] : kNothing;
    if (value[i] > largest) largest = value[i];
  }
  const float before = peak, sum_before = total;
  const float block_peak = warp_max(largest);
  const float larger = block_peak > before ? block_peak : before;
  for (int i = 0; i < 2; ++i) {
    weight[i] = value[i] == kNothing ? 0.0f : expf(value[i] - larger);
    score[lane + i * kWarp] = weight[i];
  }
  const float sum = warp_sum(weight[0] + weight[1]);
  const float factor = factor_to(larger, before);
  __syncwarp();
  if (lane == 0) {
    peak = larger;
    total = fmaf(sum_before, factor, sum);
    rescale = factor;
  }
}

// Grid: tiles * key heads, splits * slices (or slices). Output dimensions come in slices of
// kSliceChunks chunks, for each of which the scores are taken again.
template <typename T, int kEntries, int kSliceChunks>
__global__ void __launch_bounds__(Plan<kEntries, kSliceChunks>::kThreads, 1) attend(Work work) {
  using P = Plan<kEntries, kSliceChunks>;
  constexpr int kThreads = P::kThreads, kWarps = kThreads / kWarp;
  constexpr int kCols = P::kKeyThreads, kTx = kBlockKeys / kCols, kRows = 4;  // of scores
  constexpr int kDims = 4, kDimThreads = kChunk / kDims;                      // of outputs
  constexpr int kOut = kEntries / (kThreads / kDimThreads);
  __shared__ float peak[kEntries], total[kEntries], rescale[kEntries];
  __shared__ int visible[kEntries];
  begin_after_previous();

  const Tile tile = work.tiles[tile_of_block(work)];
  const int slice = static_cast<int>(blockIdx.y) % work.slices;
  const int split = static_cast<int>(blockIdx.y) / work.slices;
  const int most = visible_keys(tile, work.group, tile.count - 1);
  const bool alone = work.splits > 0;  // this block has one split
  const int begin = alone ? split * tile.split_keys : 0;
  if (begin >= most) return;
  const int end = alone && begin + tile.split_keys < most ? begin + tile.split_keys : most;

  const int thread = static_cast<int>(threadIdx.x);
  const int pitch = query_pitch(work.dim);
  float* const queries = dynamic_shared<float>();
  float* const scores = queries + kEntries * pitch;
  for (int entry = thread / kWarp; entry < kEntries; entry += kWarps) {
    const bool there = entry < tile.count;
    const float* q = work.q + (there ? row_and_head(tile, work, entry) * work.dim : 0);
    for (int d = thread % kWarp; d < pitch; d += kWarp) {
      queries[entry * pitch + d] = there && d < work.dim ? q[d] : 0.0f;
    }
  }
  for (int entry = thread; entry < kEntries; entry += kThreads) {
    // Entries that are not there see all keys, so that they hold up nobody.
    visible[entry] = entry < tile.count ? visible_keys(tile, work.group, entry) : most;
    peak[entry] = kNothing;
    total[entry] = 0.0f;
    rescale[entry] = 1.0f;
  }

  const int chunks = (work.dim + kChunk - 1) / kChunk;
  const int value_chunks =
      chunks - slice * kSliceChunks < kSliceChunks ? chunks - slice * kSliceChunks : kSliceChunks;
  const std::int64_t head_at = std::int64_t{key_head_of_block(work)} * work.dim;
  Feed<T, kThreads, P::kStages> feed{
      static_cast<const T*>(tile.keys) + head_at,
      static_cast<const T*>(tile.values) + head_at,
      tile.listed_at < 0 ? nullptr : work.listed + (tile.listed_at - tile.listed_from),
      std::int64_t{work.kv_heads} * work.dim,
      reinterpret_cast<T*>(scores + kEntries * kScorePitch),
      tile.listed_from,
      work.dim,
      end,
      tile.aligned != 0,
      chunks,
      value_chunks,
      slice * kSliceChunks,
      begin / kBlockKeys,
      (end + kBlockKeys - 1) / kBlockKeys};
#pragma unroll
  for (int i = 0; i + 1 < P::kStages; ++i) feed.ask();

  const int tx = thread % kTx, ty = thread / kTx;                         // of scores
  const int ox = thread % kDimThreads, oy = thread / kDimThreads * kOut;  // of outputs
  float sum[kSliceChunks][kOut][kDims] = {};                              // of this split
  float all[kSliceChunks][kOut][kDims] = {};                              // of the splits before it
  Running running[kOut] = {};
  int split_begin = begin;

  for (int first = begin; first < end; first += kBlockKeys) {
    float score[kRows][kCols] = {};
    for (int chunk = 0; chunk < chunks; ++chunk) {
      const T* keys = feed.take();
      const int width = work.dim - chunk * kChunk < kChunk ? work.dim - chunk * kChunk : kChunk;
      const float* q = queries + ty * kRows * pitch + chunk * kChunk;
      float part[kRows][kCols] = {};
      for (int d = 0; d < width; d += 4) {
        float4 k[kCols];
#pragma unroll
        for (int j = 0; j < kCols; ++j) k[j] = four(keys + (tx + j * kTx) * kPitch<T> + d);
#pragma unroll
        for (int i = 0; i < kRows; ++i) {
          const float4 x = four(q + i * pitch + d);
#pragma unroll
          for (int j = 0; j < kCols; ++j) {
            part[i][j] = fmaf(x.x, k[j].x, part[i][j]);
            part[i][j] = fmaf(x.y, k[j].y, part[i][j]);
            part[i][j] = fmaf(x.z, k[j].z, part[i][j]);
            part[i][j] = fmaf(x.w, k[j].w, part[i][j]);
          }
        }
      }
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
#pragma unroll
        for (int j = 0; j < kCols; ++j) score[i][j] += part[i][j];
      }
    }
#pragma unroll
    for (int j = 0; j < kCols; ++j) {
      const int key = tx + j * kTx;
      const bool biased = tile.bias != nullptr && first + key < end;
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        const int entry = ty * kRows + i;
        const float bias = biased && entry < tile.count
                               ? tile.bias[bias_at(tile, work, entry) + first + key]
                               : 0.0f;
        scores[(ty * kRows + i) * kScorePitch + key] = fmaf(score[i][j], work.scale, bias);
      }
    }
    __syncthreads();
    const int here = end - first < kBlockKeys ? end - first : kBlockKeys;
    for (int entry = thread / kWarp; entry < tile.count && entry < kEntries; entry += kWarps) {
      const int seen = visible[entry] - first < here ? visible[entry] - first : here;
      if (seen > 0) {
        weigh_scores(scores + entry * kScorePitch, seen, peak[entry], total[entry], rescale[entry]);
      } else if (thread % kWarp == 0) {
        rescale[entry] = 1.0f;
      }
    }

    // feed.take() waits for the weights too.
#pragma unroll
    for (int chunk = 0; chunk < kSliceChunks; ++chunk) {
      if (chunk >= value_chunks) continue;
      const T* values = feed.take() + ox * kDims;
      int seen[kOut], common = here, upto = 0;
#pragma unroll
      for (int i = 0; i < kOut; ++i) {
        const int left = visible[oy + i] - first;
        seen[i] = left < 0 ? 0 : left < here ? left : here;
        common = seen[i] < common ? seen[i] : common;
        upto = seen[i] > upto ? seen[i] : upto;
        const float factor = rescale[oy + i];
#pragma unroll
        for (int d = 0; d < kDims; ++d) sum[chunk][i][d] *= factor;
      }
      common = common / 4 * 4;
      for (int key = 0; key < common; key += 4) {
        float4 weight[kOut];
#pragma unroll
        for (int i = 0; i < kOut; ++i) weight[i] = four(scores + (oy + i) * kScorePitch + key);
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          const float4 v = four(values + (key + k) * kPitch<T>);
#pragma unroll
          for (int i = 0; i < kOut; ++i) {
            const float w = k == 0   ? weight[i].x
                            : k == 1 ? weight[i].y
                            : k == 2 ? weight[i].z
                                     : weight[i].w;
            sum[chunk][i][0] = fmaf(w, v.x, sum[chunk][i][0]);
            sum[chunk][i][1] = fmaf(w, v.y, sum[chunk][i][1]);
            sum[chunk][i][2] = fmaf(w, v.z, sum[chunk][i][2]);
            sum[chunk][i][3] = fmaf(w, v.w, sum[chunk][i][3]);
          }
        }
      }
      for (int key = common; key < upto; ++key) {
        const float4 v = four(values + key * kPitch<T>);
#pragma unroll
        for (int i = 0; i < kOut; ++i) {
          if (key >= seen[i]) continue;
          const float w = scores[(oy + i) * kScorePitch + key];
          sum[chunk][i][0] = fmaf(w, v.x, sum[chunk][i][0]);
          sum[chunk][i][1] = fmaf(w, v.y, sum[chunk][i][1]);
          sum[chunk][i][2] = fmaf(w, v.z, sum[chunk][i][2]);
          sum[chunk][i][3] = fmaf(w, v.w, sum[chunk][i][3]);
        }
      }
    }

    const int next = first + kBlockKeys;
    if (next < end && next - split_begin < tile.split_keys) continue;
      // The split ends: what its entries summed joins the splits before it.
#pragma unroll
    for (int i = 0; i < kOut; ++i) {
      if (visible[oy + i] <= split_begin) continue;
      const bool fresh = split_begin == begin;
      Factors factors{};
      if (fresh) {
        running[i] = {peak[oy + i], total[oy + i]};
      } else {
        factors = merge(running[i], peak[oy + i], total[oy + i]);
      }
#pragma unroll
      for (int chunk = 0; chunk < kSliceChunks; ++chunk) {
#pragma unroll
        for (int d = 0; d < kDims; ++d) {
          all[chunk][i][d] =
              fresh ? sum[chunk][i][d] : merged(all[chunk][i][d], sum[chunk][i][d], factors);
        }
      }
    }
#pragma unroll
    for (int chunk = 0; chunk < kSliceChunks; ++chunk) {
#pragma unroll
      for (int i = 0; i < kOut; ++i) {
#pragma unroll
        for (int d = 0; d < kDims; ++d) sum[chunk][i][d] = 0.0f;
      }
    }
    split_begin = next;
    __syncthreads();
    for (int entry = thread; entry < kEntries; entry += kThreads) {
      peak[entry] = kNothing;
      total[entry] = 0.0f;
    }
  }

#pragma unroll
  for (int i = 0; i < kOut; ++i) {
    if (oy + i >= tile.count || visible[oy + i] <= begin) continue;
    const std::int64_t at = row_and_head(tile, work, oy + i);
    const std::int64_t place = at * work.splits + split;
    float* out = alone ? work.sums + place * work.dim : work.out + at * work.dim;
#pragma unroll
    for (int chunk = 0; chunk < kSliceChunks; ++chunk) {
#pragma unroll
      for (int d = 0; d < kDims; ++d) {
        const int to = (slice * kSliceChunks + chunk) * kChunk + ox * kDims + d;
        const float value = all[chunk][i][d];
        if (to < work.dim) out[to] = alone ? value : value / running[i].total;
      }
    }
    if (ox != 0 || slice != 0) continue;
    if (alone) {
      work.peaks[place] = running[i].peak;
      work.totals[place] = running[i].total;
    } else {
      write_log_sum(work, at, running[i]);
    }
  }
  if constexpr (kEntries <= kFewEntries) {
    if (!alone) return;
    const int splits = (most + tile.split_keys - 1) / tile.split_keys;
    if (!is_last_of(work.tickets + blockIdx.x, static_cast<unsigned>(splits * work.slices))) return;
    merge_entries<kThreads>(work, tile, 0, tile.count);
  }
}

}  // namespace
}  // namespace tessera::cuda
