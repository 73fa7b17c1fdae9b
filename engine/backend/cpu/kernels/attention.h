// Softmax attention of a few query rows over one key and value head, with the running maximum and
// sum of Milakov & Gimelshein (2018) taken over blocks of 64 keys that start at multiples of 64.
// A row's result depends on the keys it sees alone: not on the rows beside it nor on later keys,
// which are neither read into its sum nor multiplied by zero.
#pragma once

#include "engine/backend/cpu/kernels/elementwise.h"
#include "engine/backend/cpu/kernels/kernels.h"
#include "engine/backend/cpu/kernels/simd.h"

namespace tessera::cpu {
namespace {

struct alignas(64) AttentionState {
  float score[kQueryRows][kKeyBlock];
  std::int64_t seen[kQueryRows];   // keys of this block that the row sees, 0..64
  float peak[kQueryRows];          // largest score so far
  float total[kQueryRows];         // sum of exp(score - peak) so far
  float rescale[kQueryRows];       // what sums taken before this block are multiplied by
};

// q.k for R rows and K keys; each product is sixteen partial sums and one fixed tree.
template <int R, int K, typename T>
void scores(const AttentionTask& task, int row, const T* keys, std::int64_t key, float scale,
            AttentionState& state) {
  V16 sum[R][K];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int k = 0; k < K; ++k) sum[r][k] = zero();
  }
  const std::int64_t dim = task.head_dim;
  for (std::int64_t d = 0; d < dim; d += kLanes) {
    V16 q[R];
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) q[r] = load_some(task.q[row + r] + d, dim - d);
#pragma GCC unroll 4
    for (int k = 0; k < K; ++k) {
      const V16 x = load_some(keys + (key + k) * task.kv_stride + d, dim - d);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) sum[r][k] = fma(q[r], x, sum[r][k]);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int k = 0; k < K; ++k) state.score[row + r][key + k] = reduce_add(sum[r][k]) * scale;
  }
}

// Scores of all rows against `count` keys of the block.
template <typename T>
void block_scores(const AttentionTask& task, const T* keys, const T* values, std::int64_t count,
                  AttentionState& state) {
  std::int64_t key = 0;
  for (; key + 4 <= count; key += 4) {
    // The values of these keys are read next.
    for (int k = 0; k < 4; ++k) {
      const T* value = values + (key + k) * task.kv_stride;
      for (std::int64_t d = 0; d < task.head_dim; d += 64 / static_cast<std::int64_t>(sizeof(T))) {
        __builtin_prefetch(value + d);
      }
    }
    int row = 0;
    for (; row + 2 <= task.rows; row += 2) {
      scores<2, 2>(task, row, keys, key, task.scale, state);
      scores<2, 2>(task, row, keys, key + 2, task.scale, state);
    }
    if (row < task.rows) scores<1, 4>(task, row, keys, key, task.scale, state);
  }
  for (; key < count; ++key) {
    for (int row = 0; row < task.rows; ++row) {
      scores<1, 1>(task, row, keys, key, task.scale, state);
    }
  }
}

// Turns one row of scores into exp(score - peak) and updates peak, total and rescale.
inline void block_softmax(AttentionState& state, int row, bool first) {
  float* score = state.score[row];
  const std::int64_t seen = state.seen[row];
  float peak = first ? score[0] : state.peak[row];
  for (std::int64_t key = 0; key < seen; ++key) peak = score[key] > peak ? score[key] : peak;
  for (std::int64_t key = seen; key < kKeyBlock; ++key) score[key] = -__builtin_inff();
  V16 part[4];
  for (int i = 0; i < 4; ++i) {
    part[i] = exp(sub(load(score + i * kLanes), broadcast(peak)));
    store(score + i * kLanes, part[i]);
  }
  const float sum = reduce_add(add(add(part[0], part[1]), add(part[2], part[3])));
  if (first) {
    state.rescale[row] = 0.0f;
    state.total[row] = sum;
  } else {
    alignas(64) float change[kLanes];
    store(change, exp(broadcast(state.peak[row] - peak)));
    state.rescale[row] = change[0];
    state.total[row] = state.total[row] * change[0] + sum;
  }
  state.peak[row] = peak;
}

// out[row + r] += sum over keys [begin, end) of weight * value, C chunks of 16 lanes from `d`.
// `fresh` starts from nothing, otherwise what is there is multiplied by factor[r] first.
template <int R, int C, typename T>
void weigh_values(const AttentionTask& task, int row, const T* values, std::int64_t d,
                  std::int64_t begin, std::int64_t end, const float* factor, bool fresh,
                  const AttentionState& state) {
  const std::int64_t lanes = task.head_dim - d;
  V16 sum[R][C];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) {
      if (fresh) {
        sum[r][c] = zero();
      } else {
        sum[r][c] = load_some(task.out[row + r] + d + c * kLanes, lanes - c * kLanes);
        sum[r][c] = mul(sum[r][c], broadcast(factor[r]));
      }
    }
  }
  for (std::int64_t key = begin; key < end; ++key) {
    V16 x[C];
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) {
      x[c] = load_some(values + key * task.kv_stride + d + c * kLanes, lanes - c * kLanes);
    }
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const V16 weight = broadcast(state.score[row + r][key]);
#pragma GCC unroll 4
      for (int c = 0; c < C; ++c) sum[r][c] = fma(weight, x[c], sum[r][c]);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) {
      store_some(task.out[row + r] + d + c * kLanes, sum[r][c], lanes - c * kLanes);
    }
  }
}

template <int R, typename T>
void weigh_all_lanes(const AttentionTask& task, int row, const T* values, std::int64_t begin,
                     std::int64_t end, const float* factor, bool fresh,
                     const AttentionState& state) {
  constexpr int kChunks = 4 / R;
  std::int64_t d = 0;
  for (; d + kChunks * kLanes <= task.head_dim; d += kChunks * kLanes) {
    weigh_values<R, kChunks>(task, row, values, d, begin, end, factor, fresh, state);
  }
  for (; d < task.head_dim; d += kLanes) {
    weigh_values<R, 1>(task, row, values, d, begin, end, factor, fresh, state);
  }
}

// R rows together over the keys that all of them see, then each alone over the rest.
template <int R, typename T>
void weigh_rows(const AttentionTask& task, int row, const T* values, bool fresh,
                const AttentionState& state) {
  std::int64_t common = state.seen[row];
  for (int r = 1; r < R; ++r) common = state.seen[row + r] < common ? state.seen[row + r] : common;
  weigh_all_lanes<R>(task, row, values, 0, common, state.rescale + row, fresh, state);
  if constexpr (R > 1) {
    const float same = 1.0f;
    for (int r = 0; r < R; ++r) {
      if (state.seen[row + r] > common) {
        weigh_all_lanes<1>(task, row + r, values, common, state.seen[row + r], &same, false, state);
      }
    }
  }
}

template <typename T>
void attend(const AttentionTask& task) {
  AttentionState state;
  std::int64_t most = 0;
  for (int row = 0; row < task.rows; ++row) {
    most = task.visible[row] > most ? task.visible[row] : most;
  }
  for (std::int64_t block = 0; block < most; block += kKeyBlock) {
    const T* keys = static_cast<const T*>(task.keys) + block * task.kv_stride;
    const T* values = static_cast<const T*>(task.values) + block * task.kv_stride;
    const std::int64_t left = most - block;
    block_scores(task, keys, values, left < kKeyBlock ? left : kKeyBlock, state);
    for (int row = 0; row < task.rows; ++row) {
      const std::int64_t visible = task.visible[row] - block;
      state.seen[row] = visible < 0 ? 0 : visible < kKeyBlock ? visible : kKeyBlock;
      if (state.seen[row] > 0) {
        block_softmax(state, row, block == 0);
      } else {
        state.rescale[row] = 1.0f;
      }
    }
    int row = 0;
    for (; row + 4 <= task.rows; row += 4) weigh_rows<4>(task, row, values, block == 0, state);
    for (; row + 2 <= task.rows; row += 2) weigh_rows<2>(task, row, values, block == 0, state);
    if (row < task.rows) weigh_rows<1>(task, row, values, block == 0, state);
  }
  for (int row = 0; row < task.rows; ++row) {
    const V16 total = broadcast(state.total[row]);
    for (std::int64_t d = 0; d < task.head_dim; d += kLanes) {
      const std::int64_t lanes = task.head_dim - d;
      store_some(task.out[row] + d, div(load_some(task.out[row] + d, lanes), total), lanes);
    }
  }
}

inline void attention(const AttentionTask& task) {
  if (task.bf16) {
    attend<std::uint16_t>(task);
  } else {
    attend<float>(task);
  }
}

}  // namespace
}  // namespace tessera::cpu
