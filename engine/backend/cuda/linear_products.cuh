// Kernels of matrix products of few rows: bf16 weights on tensor cores, f32 weights and blocks of
// few bits by fused multiply-adds. Both add an output in an order that the matrix alone fixes.
// Device code of linear.cu.
#pragma once

#include <cstddef>

#include "engine/backend/cuda/block_rows.cuh"
#include "engine/backend/cuda/linear_output.cuh"
#include "engine/backend/cuda/linear_rows.cuh"

namespace tessera::cuda {

constexpr int kTileRows = 16;

constexpr int kFloatSlices = 4;  // the same of f32 products,
constexpr int kFloatGroups = 4;  // groups of warps that share activations in the first cache,
constexpr int kFloatRows = 4;    // and rows of weights of a warp
constexpr int kFloatLocal = kFloatGroups * kFloatRows;
constexpr int kFloatThreads = kFloatSlices * kFloatGroups * kWarp;

// Steps of weights that a warp has under way, so that a team keeps about 40 KB of them coming.
constexpr int stages(int tiles) { return tiles == 1 ? 6 : 3; }
// Of a team's queue.
constexpr std::size_t queue_bytes(int tiles) {
  return sizeof(uint4) * static_cast<std::size_t>(kTeam * stages(tiles) * 4 * tiles);
}

// Teams that a multiprocessor holds, of its 65536 registers.
constexpr int teams_at_least(int column_tiles) {
  return column_tiles < 4 ? 4 : column_tiles < 8 ? 3 : 2;
}

// 64 inputs of each row into the thread's own places: what a thread copies only it reads, so that
// warps run on without waiting for each other.
template <int Rows>
__device__ inline void fetch_step(uint4* place, const std::uint16_t* const (&rows)[Rows],
                                  std::int64_t input) {
#pragma unroll
  for (int i = 0; i < Rows; ++i) {
    copy_async(place + (2 * i) * kWarp, rows[i] + input);
    copy_async(place + (2 * i + 1) * kWarp, rows[i] + input + kStep / 2);
  }
}

// x [rows][k] against w [padded n][k], k padded. Thread t of a group holds inputs 8t .. 8t + 7 of
// both factors and gives them out as slots 2t, 2t + 1, 2t + 8 and 2t + 9 of two products: a sum may
// take its inputs in any order as long as both factors do. Teams of a block have their own rows of
// weights and find the activations in the first-level cache, where one of them left them. The first
// weights are on their way before the kernel in front of this one has made the activations. With
// Norms the activations are to be normed, and the block, which sees all of a row, takes the factors
// as it goes.
template <int Tiles, int ColumnTiles, int Teams, typename X, bool Norms>
__global__ void __launch_bounds__(kTeam* Teams, teams_at_least(ColumnTiles) / Teams)
    bf16_product(const std::uint16_t* w, const X* x, std::int64_t k, std::int64_t last_row,
                 int chunks, int splits, Norm norm, Output o) {
  constexpr int kStages = stages(Tiles), kLocal = Tiles * kTileRows;
  constexpr int kPlaces = 4 * Tiles * kWarp;  // of one step: two rows a tile, two halves a row
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int team = static_cast<int>(threadIdx.x) / kTeam;
  const int slice = static_cast<int>(threadIdx.x) % kTeam / kWarp;
  const int group = lane / 4, t = lane % 4, split = static_cast<int>(blockIdx.y);
  const std::int64_t tile = blockIdx.x / static_cast<unsigned>(chunks) * Teams + team;
  const int first_column =
      static_cast<int>(blockIdx.x % static_cast<unsigned>(chunks)) * ColumnTiles * kEight;
  const int steps = static_cast<int>(k / kStep);
  const int end = steps * (split + 1) / splits;

  const std::uint16_t* rows[2 * Tiles];
#pragma unroll
  for (int i = 0; i < 2 * Tiles; ++i) {
    const std::int64_t row = weight_row<kLocal>(o, tile, i * kEight + group);
    rows[i] = w + (row < last_row ? row : last_row) * k + t * kEight;
  }
  const X* columns[ColumnTiles];
#pragma unroll
  for (int c = 0; c < ColumnTiles; ++c) {
    const int column = first_column + c * kEight + group;
    columns[c] = x + (column < o.rows ? column : o.rows - 1) * k + t * kEight;
  }
  float sums[ColumnTiles][Tiles][4] = {};
  [[maybe_unused]] float squares[Norms ? ColumnTiles : 1] = {};

  uint4* queue = dynamic_shared<uint4>() + (team * kSlices + slice) * kStages * kPlaces + lane;
  int step = steps * split / splits + slice;
#pragma unroll
  for (int i = 0; i < kStages - 1; ++i) {
    const int ahead = step + i * kSlices;
    if (ahead < end) {
      fetch_step(queue + i * kPlaces, rows, std::int64_t{ahead} * kStep);
    }
    copy_async_commit();
  }
  begin_after_previous();
  for (int stage = 0; step < end; step += kSlices, stage = stage + 1 == kStages ? 0 : stage + 1) {
    const int ahead = step + (kStages - 1) * kSlices;
    if (ahead < end) {
      const int free = stage == 0 ? kStages - 1 : stage - 1;
      fetch_step(queue + free * kPlaces, rows, std::int64_t{ahead} * kStep);
    }
    copy_async_commit();
    uint4 b[2][ColumnTiles];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::int64_t input = std::int64_t{step} * kStep + half * (kStep / 2);
      if constexpr (Norms) {
        const EightFloats weight = eight_floats(norm.weight + t * kEight + input);
#pragma unroll
        for (int c = 0; c < ColumnTiles; ++c) {
          const EightFloats v = eight_floats(columns[c] + input);
          squares[c] += sum_of_squares(v);
          b[half][c] = rounded({times(v.low, weight.low), times(v.high, weight.high)});
        }
      } else {
#pragma unroll
        for (int c = 0; c < ColumnTiles; ++c) b[half][c] = eight_bf16(columns[c] + input);
      }
    }
    copy_async_wait<kStages - 1>();
    const uint4* place = queue + stage * kPlaces;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int i = 0; i < Tiles; ++i) {
        const uint4 low = place[(4 * i + half) * kWarp];
        const uint4 high = place[(4 * i + 2 + half) * kWarp];
        const std::uint32_t a[2][4] = {{low.x, high.x, low.y, high.y},
                                       {low.z, high.z, low.w, high.w}};
#pragma unroll
        for (int c = 0; c < ColumnTiles; ++c) {
          const std::uint32_t b0[2] = {b[half][c].x, b[half][c].y};
          const std::uint32_t b1[2] = {b[half][c].z, b[half][c].w};
          mma_bf16(sums[c][i], a[0], b0);
          mma_bf16(sums[c][i], a[1], b1);
        }
      }
    }
  }

  // The queue is empty; its memory takes the warps' shares, a few tiles at once.
  constexpr int kAtOnce = ColumnTiles < 4 ? ColumnTiles : 4, kPitch = share_pitch(kLocal);
  const int thread = static_cast<int>(threadIdx.x) % kTeam;
  float* shares = dynamic_shared<float>() + team * (queue_bytes(Tiles) / sizeof(float));
  const float* factors = norm.factors == nullptr ? nullptr : norm.factors + first_column;
  if constexpr (Norms) {
    constexpr int kColumns = ColumnTiles * kEight;
    // After the shares: kSlices rows of squares, the first of which becomes the factors.
    float* of_slices = shares + kSlices * kAtOnce * kEight * kPitch;
    static_assert((kSlices * kAtOnce * kEight * kPitch + kSlices * kColumns) * sizeof(float) <=
                  queue_bytes(Tiles));
    __syncthreads();
#pragma unroll
    for (int c = 0; c < ColumnTiles; ++c) {
      const float sum = sum_of_four(squares[c]);
      if (t == 0) of_slices[slice * kColumns + c * kEight + group] = sum;
    }
    __syncthreads();
    if (thread < kColumns) {
      of_slices[thread] = norm_factor<kColumns>(of_slices + thread, k, norm.eps);
    }
    factors = of_slices;  // there after the barriers below
  }
#pragma unroll
  for (int c = 0; c < ColumnTiles; c += kAtOnce) {
    __syncthreads();
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
#pragma unroll
      for (int i = 0; i < Tiles; ++i) {
        float* to =
            shares + ((slice * kAtOnce + j) * kEight + 2 * t) * kPitch + i * kTileRows + group;
        to[0] = sums[c + j][i][0];
        to[kPitch] = sums[c + j][i][1];
        to[kEight] = sums[c + j][i][2];
        to[kPitch + kEight] = sums[c + j][i][3];
      }
    }
    __syncthreads();
    write_tile<kSlices, kLocal, kAtOnce * kEight, kTeam>(
        o, shares, factors == nullptr || o.partial != nullptr ? nullptr : factors + c * kEight,
        thread, tile, first_column + c * kEight, split);
  }
  if (o.partial != nullptr && is_last_of(o.tickets + blockIdx.x, static_cast<unsigned>(splits))) {
    merge_tile<kLocal, kTeam>(o, factors, thread, tile, first_column, ColumnTiles * kEight, splits);
  }
}

// Sums N numbers over the lanes of a warp, each by halves: lane l with l % (32 / N) == 0 has the
// sum of number l / (32 / N) at [0]. A number's tree is the same for every N.
template <int N>
__device__ inline void sum_lanes(float (&v)[N], int lane) {
  int count = N;
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    if (count == 1) {
      v[0] += __shfl_xor_sync(kAllLanes, v[0], offset);
      continue;
    }
    count /= 2;
    const bool upper = (lane & offset) != 0;
#pragma unroll
    for (int i = 0; i < N / 2; ++i) {
      if (i >= count) break;
      const float mine = upper ? v[i + count] : v[i];
      const float theirs = upper ? v[i] : v[i + count];
      v[i] = mine + __shfl_xor_sync(kAllLanes, theirs, offset);
    }
  }
}

// x [rows][inputs] against w [padded n][stride], inputs a multiple of four. Lanes take four inputs
// in turn, a lane's sum is one chain.
template <typename Rows, int Columns>
__global__ void __launch_bounds__(kFloatThreads)
    f32_product(const typename Rows::Unit* w, std::int64_t stride, const float* x,
                std::int64_t inputs, std::int64_t last_row, int chunks, Output o) {
  constexpr int kTurn = kFloatSlices * kWarp * 4;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int slice = warp % kFloatSlices, first_local = warp / kFloatSlices * kFloatRows;
  const std::int64_t tile = blockIdx.x / static_cast<unsigned>(chunks);
  const int first_column = static_cast<int>(blockIdx.x % static_cast<unsigned>(chunks)) * Columns;

  const typename Rows::Unit* rows[kFloatRows];
  float4 a[kFloatRows] = {};
  std::int64_t k = (slice * kWarp + lane) * 4;
#pragma unroll
  for (int i = 0; i < kFloatRows; ++i) {
    const std::int64_t row = weight_row<kFloatLocal>(o, tile, first_local + i);
    rows[i] = w + (row < last_row ? row : last_row) * stride;
    if (k < inputs) Rows::early(rows[i], k);
  }
  begin_after_previous();
#pragma unroll
  for (int i = 0; i < kFloatRows; ++i) {
    if (k < inputs) a[i] = Rows::four(rows[i], k);
  }
  const float* columns[Columns];
#pragma unroll
  for (int c = 0; c < Columns; ++c) {
    const int column = first_column + c < o.rows ? first_column + c : o.rows - 1;
    columns[c] = x + column * inputs;
  }
  float sums[kFloatRows * Columns] = {};
  while (k < inputs) {
    float4 b[Columns];
#pragma unroll
    for (int c = 0; c < Columns; ++c) b[c] = *reinterpret_cast<const float4*>(columns[c] + k);
    k += kTurn;
#pragma unroll
    for (int i = 0; i < kFloatRows; ++i) {
      const float4 row = a[i];
      if (k < inputs) a[i] = Rows::four(rows[i], k);
#pragma unroll
      for (int c = 0; c < Columns; ++c) {
        float& sum = sums[i * Columns + c];
        sum = fmaf(row.x, b[c].x, sum);
        sum = fmaf(row.y, b[c].y, sum);
        sum = fmaf(row.z, b[c].z, sum);
        sum = fmaf(row.w, b[c].w, sum);
      }
    }
  }
  constexpr int kNumbers = kFloatRows * Columns, kLanesEach = kWarp / kNumbers;
  sum_lanes<kNumbers>(sums, lane);
  float* shares = dynamic_shared<float>();
  if (lane % kLanesEach == 0) {
    const int local = first_local + lane / kLanesEach / Columns;
    const int column = lane / kLanesEach % Columns;
    shares[(slice * Columns + column) * share_pitch(kFloatLocal) + local] = sums[0];
  }
  __syncthreads();
  write_tile<kFloatSlices, kFloatLocal, Columns, kFloatThreads>(
      o, shares, nullptr, static_cast<int>(threadIdx.x), tile, first_column, 0);
}

}  // namespace tessera::cuda
