// Where a block's products go: shares of a sum added in order, then the factor that norms the row,
// a bias, a sum that stands there already, or a gate. Device code of linear.cu.
#pragma once

#include "engine/backend/cuda/simt.cuh"

namespace tessera::cuda {

struct Output {
  const float* bias = nullptr;  // [n] or none
  float* out = nullptr;         // [rows][pitch], n of a row, with a gate up
  float* partial = nullptr;     // [splits][rows][n], where the inputs are split over blocks,
  unsigned* tickets = nullptr;  // and a counter for each of the blocks of one split
  std::int64_t pitch = 0;       // of a row of out
  std::int64_t n = 0;           // outputs of the product
  std::int64_t up = 0;          // with a gate: rows r and up + r of the weights meet; else 0
  int rows = 0;                 // of activations
  bool add = false;             // to what stands in out
};

// Row of the weights that stands at place `local` of a block's `LocalRows` ones. With a gate the
// first half are gates and the second half what they let through.
template <int LocalRows>
__device__ inline std::int64_t weight_row(const Output& o, std::int64_t tile, int local) {
  constexpr int kHalf = LocalRows / 2;
  if (o.up == 0) return tile * LocalRows + local;
  const std::int64_t first = tile * kHalf + local % kHalf;
  return local < kHalf ? first : o.up + first;
}

__device__ inline void write_output(const Output& o, std::int64_t row, int column, float value) {
  if (o.bias != nullptr) value += o.bias[row];
  float* to = o.out + column * o.pitch + row;
  *to = o.add ? *to + value : value;
}

// silu(gate) up: that of the product followed by silu_mul up to the rounding of the exponential.
__device__ inline void write_gated(const Output& o, std::int64_t row, int column, float gate,
                                   float up) {
  o.out[column * o.pitch + row] = gate / (1.0f + expf(-gate)) * up;
}

template <int Slices, int Pitch>
__device__ inline float sum_shares(const float* share) {
  float sum = share[0];
#pragma unroll
  for (int i = 1; i < Slices; ++i) sum += share[i * Pitch];
  return sum;
}

// Rows of a column of shares lie this far from the next column's: no two lanes of a warp that
// writes an accumulator tile meet in a bank.
constexpr int share_pitch(int local_rows) { return local_rows + 4; }

// Whether place `local` of a tile stands for a row of the weights.
template <int LocalRows>
__device__ inline bool is_there(const Output& o, std::int64_t tile, int local) {
  constexpr int kHalf = LocalRows / 2;
  if (o.up == 0) return tile * LocalRows + local < o.n;
  return tile * kHalf + local % kHalf < o.up;
}

// shares [Slices][Columns][share_pitch(LocalRows)]: what each slice of the inputs gives; factors
// [Columns] or none. A row of the weights lies in thread after thread, as it does in `out`.
template <int Slices, int LocalRows, int Columns, int Threads>
__device__ inline void write_tile(const Output& o, const float* shares, const float* factors,
                                  int thread, std::int64_t tile, int first_column, int split) {
  constexpr int kPitch = share_pitch(LocalRows), kHalf = LocalRows / 2;
  for (int i = thread; i < LocalRows * Columns; i += Threads) {
    const int local = i % LocalRows, column = first_column + i / LocalRows;
    if (column >= o.rows || !is_there<LocalRows>(o, tile, local)) continue;
    const std::int64_t row = weight_row<LocalRows>(o, tile, local);
    const float* share = shares + i / LocalRows * kPitch + local;
    const float factor = factors != nullptr ? factors[i / LocalRows] : 1.0f;
    const float sum = __fmul_rn(sum_shares<Slices, Columns * kPitch>(share), factor);
    if (o.partial != nullptr) {
      o.partial[(std::int64_t{split} * o.rows + column) * o.n + row] = sum;
    } else if (o.up == 0) {
      write_output(o, row, column, sum);
    } else if (local < kHalf) {
      const float up = sum_shares<Slices, Columns * kPitch>(share + kHalf);
      write_gated(o, row, column, sum, __fmul_rn(up, factor));
    }
  }
}

// What the blocks of one tile have, added in the order of their inputs.
template <int LocalRows, int Threads>
__device__ inline void merge_tile(const Output& o, const float* factors, int thread,
                                  std::int64_t tile, int first_column, int columns, int splits) {
  constexpr int kHalf = LocalRows / 2;
  for (int i = thread; i < LocalRows * columns; i += Threads) {
    const int local = i % LocalRows, column = first_column + i / LocalRows;
    if (column >= o.rows || !is_there<LocalRows>(o, tile, local)) continue;
    if (o.up != 0 && local >= kHalf) continue;
    const std::int64_t row = weight_row<LocalRows>(o, tile, local);
    const float* from = o.partial + column * o.n + row;
    float sum = from[0], up = o.up == 0 ? 0.0f : from[o.up];
    for (int split = 1; split < splits; ++split) {
      from += o.rows * o.n;
      sum += from[0];
      if (o.up != 0) up += from[o.up];
    }
    const float factor = factors != nullptr ? factors[i / LocalRows] : 1.0f;
    if (o.up == 0) {
      write_output(o, row, column, __fmul_rn(sum, factor));
    } else {
      write_gated(o, row, column, __fmul_rn(sum, factor), __fmul_rn(up, factor));
    }
  }
}

}  // namespace tessera::cuda
