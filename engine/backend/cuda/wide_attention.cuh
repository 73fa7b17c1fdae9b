// The kernel of wide_attention.cu: a tile of query entries against blocks of keys, by the tensor
// cores' products, with scores and outputs in registers. Included by wide_attention.cu only.
#pragma once

#include "engine/backend/cuda/simt.cuh"

namespace tessera::cuda {
namespace {

constexpr int kWideWarps = 4;
constexpr int kWideThreads = kWideWarps * kWarp;
constexpr int kRing = 3;  // blocks in shared memory: one in use, two on their way
constexpr float kUnseen = -HUGE_VALF;
constexpr float kLog2e = 1.44269504088896341f;
constexpr float kLowest = -3.402823466e38f;

// Query entries, a row and a head each, that share a key head: entry row * group + head of the
// group, as in attention.cuh.
struct WideTile {
  const void *keys, *values;
  const float* bias;       // or null
  std::int32_t row_begin;  // of the segment
  std::int32_t first, count;
  std::int32_t first_visible, causal;
};

struct WideWork {
  const float* q;
  float *out, *log_sum;  // log_sum or null
  float scale;
  const WideTile* tiles;
  int heads, kv_heads, group, dim;
  bool by_eight;  // bf16 rows of a head are whole pieces of 16 bytes
};

// f32 numbers as sums of so many bf16 ones, each rounded from what those before it left. Of
// products of two such sums the three largest are taken: 16 bits are kept.
template <typename T>
constexpr int kPartsOf = sizeof(T) == 4 ? 2 : 1;

// Dimensions are padded with zeros to kDim; a warp has kRowTiles times 16 entries.
template <typename T, int kDim, int kRowTiles>
struct WidePlan {
  static constexpr int kParts = kPartsOf<T>;
  static constexpr int kKeys = kDim > 128 || kParts > 1 ? 32 : 64;  // of a block
  // An odd number of 16 bytes: eight rows that a product reads at once lie in different banks.
  static constexpr int kPitch = kDim + 8;
  static constexpr int kWarpEntries = 16 * kRowTiles;
  static constexpr int kEntries = kWideWarps * kWarpEntries;
  static constexpr int kQueries = kEntries * kPitch, kBlock = kKeys * kPitch;  // of one part
  static constexpr std::size_t kShared =
      sizeof(std::uint16_t) * static_cast<std::size_t>(kParts * (kQueries + kRing * kBlock));
};

__device__ inline int keys_seen(const WideTile& tile, int group, int entry) {
  return tile.first_visible + (tile.causal != 0 ? (tile.first + entry) / group + 1 : 0);
}

__device__ inline std::int64_t place_of(const WideTile& tile, const WideWork& work, int key_head,
                                        int entry) {
  const int at = tile.first + entry;
  return std::int64_t{tile.row_begin + at / work.group} * work.heads + key_head * work.group +
         at % work.group;
}

// Four numbers as kParts bf16 ones each; parts lie `apart`.
template <int kParts>
__device__ inline void put_four(const float* from, std::uint16_t* to, int apart) {
  const float4 x = *reinterpret_cast<const float4*>(from);
  const uint2 rounded = {pack_bf16(x.x, x.y), pack_bf16(x.z, x.w)};
  *reinterpret_cast<uint2*>(to) = rounded;
  if (kParts == 1) return;
  *reinterpret_cast<uint2*>(to + apart) = {
      pack_bf16(x.x - bf16_low(rounded.x), x.y - bf16_high(rounded.x)),
      pack_bf16(x.z - bf16_low(rounded.y), x.w - bf16_high(rounded.y))};
}
template <int kParts>
__device__ inline void put_four(const std::uint16_t* from, std::uint16_t* to, int /*apart*/) {
  *reinterpret_cast<uint2*>(to) = *reinterpret_cast<const uint2*>(from);
}
template <int kParts>
__device__ inline void put_zeros(std::uint16_t* to, int apart) {
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
    *reinterpret_cast<uint2*>(to + part * apart) = make_uint2(0, 0);
  }
}

// `count` rows of a table, `stride` apart, as bf16; rows after them are zeros, for a weight of 0
// times whatever lies there could be a NaN. Columns from `dim` on are left alone.
template <typename T, int kDim, int kRows, int kPitch>
__device__ inline void fetch_rows(const T* from, std::int64_t stride, int count, int dim,
                                  bool by_eight, std::uint16_t* to) {
  const int thread = static_cast<int>(threadIdx.x);
  if (sizeof(T) == 2 && by_eight) {
    constexpr int kPieces = kDim / 8;
#pragma unroll 1  // sums and scores leave no registers for more addresses
    for (int i = thread; i < kRows * kPieces; i += kWideThreads) {
      const int row = i / kPieces, d = i % kPieces * 8;
      if (d >= dim) continue;
      if (row < count) {
        copy_async(to + row * kPitch + d, from + row * stride + d);
      } else {
        *reinterpret_cast<uint4*>(to + row * kPitch + d) = make_uint4(0, 0, 0, 0);
      }
    }
    return;
  }
  constexpr int kPieces = kDim / 4;
#pragma unroll 4
  for (int i = thread; i < kRows * kPieces; i += kWideThreads) {
    const int row = i / kPieces, d = i % kPieces * 4;
    if (d >= dim) continue;
    if (row < count) {
      put_four<kPartsOf<T>>(from + row * stride + d, to + row * kPitch + d, kRows * kPitch);
    } else {
      put_zeros<kPartsOf<T>>(to + row * kPitch + d, kRows * kPitch);
    }
  }
}

// The keys and values of one key head through the ring: for every block its keys, then its values.
template <typename T, int kDim, int kKeys, int kPitch>
struct WideFeed {
  const T *keys, *values;
  std::int64_t stride;
  int dim, most;  // keys below `most`
  bool by_eight;
  std::uint16_t* ring;
  static constexpr int kSlot = kPartsOf<T> * kKeys * kPitch;
  int asked = 0, slot = 0;  // the slot that is written next

  __device__ void ask() {
    const int first = asked / 2 * kKeys;
    if (first < most) {
      const T* from = (asked % 2 == 0 ? keys : values) + first * stride;
      const int count = most - first < kKeys ? most - first : kKeys;
      fetch_rows<T, kDim, kKeys, kPitch>(from, stride, count, dim, by_eight, ring + slot * kSlot);
    }
    ++asked;
    slot = slot + 1 == kRing ? 0 : slot + 1;
    copy_async_commit();
  }
  // The next block for all threads; the one before it may be overwritten.
  __device__ const std::uint16_t* take() {
    copy_async_wait<kRing - 2>();
    __syncthreads();
    ask();
    return ring + slot * kSlot;  // as many asks ago as the ring has slots
  }
};

// Queries as bf16, zeros where there is none; the columns of the ring that no copy writes.
template <typename P, int kDim>
__device__ inline void fill_queries(const WideWork& work, const WideTile& tile, int key_head,
                                    std::uint16_t* queries, std::uint16_t* ring) {
  constexpr int kPieces = kDim / 4;
  const int thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < P::kEntries * kPieces; i += kWideThreads) {
    const int entry = i / kPieces, d = i % kPieces * 4;
    std::uint16_t* to = queries + entry * P::kPitch + d;
    if (entry < tile.count && d < work.dim) {
      put_four<P::kParts>(work.q + place_of(tile, work, key_head, entry) * work.dim + d, to,
                          P::kQueries);
    } else {
      put_zeros<P::kParts>(to, P::kQueries);
    }
  }
  if (work.dim == kDim) return;
  for (int i = thread; i < kRing * P::kParts * P::kKeys * kPieces; i += kWideThreads) {
    const int row = i / kPieces, d = i % kPieces * 4;
    if (d >= work.dim) put_zeros<1>(ring + row * P::kPitch + d, 0);
  }
}

// What a thread knows of two rows, g and g + 8 of a tile of 16, whose scores it holds.
struct TwoRows {
  int seen[2];
  float peak[2], total[2];  // total of this thread's keys alone
};

// Turns scores of keys first .. into weights relative to the largest score so far, and scales what
// was summed up relative to a smaller one. Scores are in units of ln 2.
template <int kKeyTiles, int kDimTiles>
__device__ inline void weigh(float (&score)[kKeyTiles][4], TwoRows& rows,
                             float (&sum)[kDimTiles][4]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float largest = rows.peak[half];
#pragma unroll
    for (int n = 0; n < kKeyTiles; ++n) {
      largest = fmaxf(largest, fmaxf(score[n][2 * half], score[n][2 * half + 1]));
    }
    largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, 2));
    const float factor = exp2_approximately(rows.peak[half] - largest);
    rows.peak[half] = largest;
    float total = 0.0f;
#pragma unroll
    for (int n = 0; n < kKeyTiles; ++n) {
#pragma unroll
      for (int i = 2 * half; i < 2 * half + 2; ++i) {
        score[n][i] = exp2_approximately(score[n][i] - largest);
        total += score[n][i];
      }
    }
    rows.total[half] = fmaf(rows.total[half], factor, total);
#pragma unroll
    for (int n = 0; n < kDimTiles; ++n) {
      sum[n][2 * half] *= factor;
      sum[n][2 * half + 1] *= factor;
    }
  }
}

// Columns 8 n .. 8 n + 15 of sums of products: a of every part against one part of b. What two
// second parts give is left out.
template <int kParts, int kRowTiles, int kColumnTiles>
__device__ inline void add_products(float (&sum)[kRowTiles][kColumnTiles][4], int n,
                                    const std::uint32_t (&a)[kParts][kRowTiles][4],
                                    const std::uint32_t (&b)[4], int part_of_b) {
  const std::uint32_t b0[2] = {b[0], b[1]}, b1[2] = {b[2], b[3]};
#pragma unroll
  for (int part = 0; part + part_of_b < kParts; ++part) {
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
      mma_bf16(sum[r][n], a[part][r], b0);
      mma_bf16(sum[r][n + 1], a[part][r], b1);
    }
  }
}

// Grid: tiles * key heads. Lanes hold products as ptx.cuh has them, with g = lane / 4, t = lane
// % 4.
template <typename T, int kDim, int kRowTiles>
__global__ void __launch_bounds__(kWideThreads, 2) attend_wide(WideWork work) {
  using P = WidePlan<T, kDim, kRowTiles>;
  constexpr int kKeys = P::kKeys, kPitch = P::kPitch, kParts = P::kParts;
  constexpr int kKeyTiles = kKeys / 8, kDimTiles = kDim / 8;
  const auto kv_heads = static_cast<unsigned>(work.kv_heads);
  const WideTile tile = work.tiles[blockIdx.x / kv_heads];
  const int key_head = static_cast<int>(blockIdx.x % kv_heads);
  const int most = keys_seen(tile, work.group, tile.count - 1);
  const int lane = static_cast<int>(threadIdx.x) % kWarp, g = lane / 4, t = lane % 4;
  const int entry = static_cast<int>(threadIdx.x) / kWarp * P::kWarpEntries;  // first of the warp

  std::uint16_t* const queries = dynamic_shared<std::uint16_t>();
  std::uint16_t* const ring = queries + P::kParts * P::kQueries;
  fill_queries<P, kDim>(work, tile, key_head, queries, ring);
  const std::int64_t head_at = std::int64_t{key_head} * work.dim;
  WideFeed<T, kDim, kKeys, kPitch> feed{static_cast<const T*>(tile.keys) + head_at,
                                        static_cast<const T*>(tile.values) + head_at,
                                        std::int64_t{work.kv_heads} * work.dim,
                                        work.dim,
                                        most,
                                        work.by_eight,
                                        ring};
#pragma unroll
  for (int i = 0; i + 1 < kRing; ++i) feed.ask();

  TwoRows rows[kRowTiles];
#pragma unroll
  for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int at = entry + r * 16 + half * 8 + g;
      // Entries that are not there see all keys, as their queries of zeros may.
      rows[r].seen[half] = at < tile.count ? keys_seen(tile, work.group, at) : most;
      rows[r].peak[half] = kUnseen;
      rows[r].total[half] = 0.0f;
    }
  }
  // What the first and the last entry of the warp see: between the two, blocks need a mask.
  const int last = entry + P::kWarpEntries - 1;
  const int seen_by_all = entry < tile.count ? keys_seen(tile, work.group, entry) : most;
  const int seen_by_any = entry >= tile.count  ? 0
                          : last >= tile.count ? most
                                               : keys_seen(tile, work.group, last);

  const float scale = work.scale * kLog2e;
  // Where each lane's row of a product's operand begins: of queries and values, and of keys.
  const int across = (lane % 16) * kPitch + lane / 16 * 8;
  const int along = (lane / 16 * 8 + lane % 8) * kPitch + lane / 8 % 2 * 8;
  float sum[kRowTiles][kDimTiles][4] = {};
  for (int first = 0; first < most; first += kKeys) {
    const std::uint16_t* keys = feed.take();
    const bool sees = first < seen_by_any;
    std::uint32_t weight[kParts][kRowTiles][kKeyTiles / 2][4];
    if (sees) {
      float score[kRowTiles][kKeyTiles][4] = {};
#pragma unroll 2
      for (int d = 0; d < kDim; d += 16) {
        std::uint32_t a[kParts][kRowTiles][4];
#pragma unroll
        for (int part = 0; part < kParts; ++part) {
#pragma unroll
          for (int r = 0; r < kRowTiles; ++r) {
            load_matrices(a[part][r],
                          queries + part * P::kQueries + (entry + r * 16) * kPitch + across + d);
          }
        }
#pragma unroll
        for (int n = 0; n < kKeyTiles; n += 2) {
#pragma unroll
          for (int part = 0; part < kParts; ++part) {
            std::uint32_t b[4];
            load_matrices(b, keys + part * P::kBlock + n * 8 * kPitch + along + d);
            add_products<kParts>(score, n, a, b, part);
          }
        }
      }
#pragma unroll
      for (int n = 0; n < kKeyTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int key = first + n * 8 + 2 * t + i;
          // The lowest float, which hides a key, is lowest in units of ln 2 as well.
          const float bias =
              tile.bias != nullptr && key < most ? fmaxf(tile.bias[key] * kLog2e, kLowest) : 0.0f;
#pragma unroll
          for (int r = 0; r < kRowTiles; ++r) {
            score[r][n][i] = fmaf(score[r][n][i], scale, bias);
            score[r][n][i + 2] = fmaf(score[r][n][i + 2], scale, bias);
          }
        }
      }
      if (first + kKeys > seen_by_all) {
#pragma unroll
        for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
          for (int n = 0; n < kKeyTiles; ++n) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
              const int key = first + n * 8 + 2 * t + i % 2;
              if (key >= rows[r].seen[i / 2]) score[r][n][i] = kUnseen;
            }
          }
        }
      }
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) {
        weigh(score[r], rows[r], sum[r]);
#pragma unroll
        for (int n = 0; n < kKeyTiles / 2; ++n) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const float* pair = &score[r][2 * n + i / 2][i % 2 * 2];
            weight[0][r][n][i] = pack_bf16(pair[0], pair[1]);
            if (kParts == 1) continue;
            weight[kParts - 1][r][n][i] = pack_bf16(pair[0] - bf16_low(weight[0][r][n][i]),
                                                    pair[1] - bf16_high(weight[0][r][n][i]));
          }
        }
      }
    }
    const std::uint16_t* values = feed.take();
    if (!sees) continue;
#pragma unroll
    for (int k = 0; k < kKeyTiles / 2; ++k) {
      std::uint32_t a[kParts][kRowTiles][4];
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
#pragma unroll
        for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
          for (int i = 0; i < 4; ++i) a[part][r][i] = weight[part][r][k][i];
        }
      }
#pragma unroll
      for (int n = 0; n < kDimTiles; n += 2) {
#pragma unroll
        for (int part = 0; part < kParts; ++part) {
          std::uint32_t b[4];
          load_matrices_turned(b, values + part * P::kBlock + k * 16 * kPitch + across + n * 8);
          add_products<kParts>(sum, n, a, b, part);
        }
      }
    }
  }

  // Read again, for the loop above needs every register.
  const WideTile written = work.tiles[blockIdx.x / kv_heads];
#pragma unroll
  for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float total = rows[r].total[half];
      total += __shfl_xor_sync(kAllLanes, total, 1);
      total += __shfl_xor_sync(kAllLanes, total, 2);
      const int at = entry + r * 16 + half * 8 + g;
      if (at >= written.count) continue;
      const std::int64_t place = place_of(written, work, key_head, at);
      const float share = 1.0f / total;
#pragma unroll
      for (int n = 0; n < kDimTiles; ++n) {
        const int d = n * 8 + 2 * t;
        if (d >= work.dim) continue;
        *reinterpret_cast<float2*>(work.out + place * work.dim + d) = {
            sum[r][n][2 * half] * share, sum[r][n][2 * half + 1] * share};
      }
      if (t == 0 && work.log_sum != nullptr) {
        work.log_sum[place] = fmaf(rows[r].peak[half], 1.0f / kLog2e, logf(total));
      }
    }
  }
}

}  // namespace
}  // namespace tessera::cuda
