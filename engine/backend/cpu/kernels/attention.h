// Softmax attention of a few query rows over neighbouring key and value heads, with the running
// maximum and sum of Milakov & Gimelshein (2018) taken over blocks of 64 keys that start at
// multiples of 64. A row's result depends on the keys it sees alone: not on the rows and heads
// next to it nor on later keys, which are neither read into its sum nor multiplied by zero. The
// heads of one position lie side by side in memory and are read in that order.
#pragma once

#include "engine/backend/cpu/kernels/elementwise.h"
#include "engine/backend/cpu/kernels/kernels.h"
#include "engine/backend/cpu/kernels/simd.h"
#include "engine/core/index.h"

namespace tessera::cpu {
namespace {

constexpr std::int64_t kAhead = 8;  // keys between the one that is read and the one asked for

struct alignas(64) AttentionState {
  float score[kQueryRows][kKeyBlock];
  std::int64_t seen[kQueryRows];  // keys of this block that the row sees, 0..64
  float peak[kQueryRows];         // largest score so far
  float total[kQueryRows];        // sum of exp(score - peak) so far
  float rescale[kQueryRows];      // what sums taken before this block are multiplied by
};

// One chunk of lanes of q.k for R rows and K keys; kWhole: all 16 lanes are there.
template <bool kWhole, int R, int K, typename T>
inline void add_products(const AttentionTask& task, int row, const T* keys, std::int64_t key,
                         std::int64_t d, V16 (&sum)[R][K]) {
  const std::int64_t lanes = kWhole ? kLanes : task.head_dim - d;
  V16 q[R];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) q[r] = load_lanes<kWhole>(task.q[row + r] + d, lanes);
#pragma GCC unroll 4
  for (int k = 0; k < K; ++k) {
    const V16 x = load_lanes<kWhole>(keys + (key + k) * task.kv_stride + d, lanes);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) sum[r][k] = fma(q[r], x, sum[r][k]);
  }
}

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
  const std::int64_t whole = task.head_dim / kLanes * kLanes;
  for (std::int64_t d = 0; d < whole; d += kLanes) {
    add_products<true, R, K>(task, row, keys, key, d, sum);
  }
  if (whole < task.head_dim) add_products<false, R, K>(task, row, keys, key, whole, sum);
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int k = 0; k < K; ++k) state.score[row + r][key + k] = reduce_add(sum[r][k]) * scale;
  }
}

// Asks for one head of `count` rows that are read soon; a row of one head is shorter than what the
// processor's own prefetching follows.
template <typename T>
inline void prefetch_rows(const AttentionTask& task, const T* rows, int count) {
  constexpr std::int64_t kLine = 64 / to_index(sizeof(T));
  for (int i = 0; i < count; ++i) {
    for (std::int64_t d = 0; d < task.head_dim; d += kLine) {
      __builtin_prefetch(rows + i * task.kv_stride + d, 0, 2);
    }
  }
}

// Scores of all entries against `count` keys of the block.
template <typename T>
void block_scores(const AttentionTask& task, const T* keys, std::int64_t count,
                  AttentionState& state) {
  std::int64_t key = 0;
  for (; key + 4 <= count; key += 4) {
    for (int head = 0; head < task.heads; ++head) {
      const T* head_keys = keys + head * task.head_dim;
      if (task.rows <= kFewRows) {
        prefetch_rows(task, head_keys + (key + kAhead) * task.kv_stride, 4);
      }
      int row = head * task.rows;
      const int end = row + task.rows;
      for (; row + 2 <= end; row += 2) {
        scores<2, 2>(task, row, head_keys, key, task.scale, state);
        scores<2, 2>(task, row, head_keys, key + 2, task.scale, state);
      }
      if (row < end) scores<1, 4>(task, row, head_keys, key, task.scale, state);
    }
  }
  for (; key < count; ++key) {
    for (int row = 0; row < task.heads * task.rows; ++row) {
      const T* head_keys = keys + row / task.rows * task.head_dim;
      scores<1, 1>(task, row, head_keys, key, task.scale, state);
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

// out[row + r] += sum over keys [begin, end) of weight * value, C chunks of 16 lanes from `d`;
// kWhole: all of them are there. `fresh` starts from nothing, otherwise what is there is multiplied
// by factor[r] first.
template <bool kWhole, int R, int C, typename T>
void weigh_values(const AttentionTask& task, int row, const T* values, std::int64_t d,
                  std::int64_t begin, std::int64_t end, const float* factor, bool fresh,
                  const AttentionState& state) {
  const std::int64_t lanes = kWhole ? kLanes : task.head_dim - d;
  V16 sum[R][C];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) {
      if (fresh) {
        sum[r][c] = zero();
      } else {
        sum[r][c] = load_lanes<kWhole>(task.out[row + r] + d + c * kLanes, lanes);
        sum[r][c] = mul(sum[r][c], broadcast(factor[r]));
      }
    }
  }
  const std::int64_t stride = task.kv_stride;
  const T* value = values + begin * stride + d;
  const float* weights[R];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) weights[r] = state.score[row + r];
  for (std::int64_t key = begin; key < end; ++key, value += stride) {
    V16 x[C];
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) x[c] = load_lanes<kWhole>(value + c * kLanes, lanes);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const V16 weight = broadcast(weights[r][key]);
#pragma GCC unroll 4
      for (int c = 0; c < C; ++c) sum[r][c] = fma(weight, x[c], sum[r][c]);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) {
      store_lanes<kWhole>(task.out[row + r] + d + c * kLanes, sum[r][c], lanes);
    }
  }
}

template <int R, typename T>
void weigh_all_lanes(const AttentionTask& task, int row, const T* values, std::int64_t begin,
                     std::int64_t end, const float* factor, bool fresh,
                     const AttentionState& state) {
  constexpr int kChunks = (kVectorLanes == 16 && R > 1 ? 8 : 4) / R;
  std::int64_t d = 0;
  for (; d + kChunks * kLanes <= task.head_dim; d += kChunks * kLanes) {
    weigh_values<true, R, kChunks>(task, row, values, d, begin, end, factor, fresh, state);
  }
  for (; d + kLanes <= task.head_dim; d += kLanes) {
    weigh_values<true, R, 1>(task, row, values, d, begin, end, factor, fresh, state);
  }
  if (d < task.head_dim) {
    weigh_values<false, R, 1>(task, row, values, d, begin, end, factor, fresh, state);
  }
}

struct KeyRange {
  std::int64_t begin, end;  // within the block
  bool fresh;               // nothing was summed before
};

// R rows together over the keys that all of them see, then each alone over the rest.
template <int R, typename T>
void weigh_rows(const AttentionTask& task, int row, const T* values, KeyRange range,
                const AttentionState& state) {
  static constexpr float kSame[4] = {1.0f, 1.0f, 1.0f, 1.0f};
  std::int64_t common = range.end;
  for (int r = 0; r < R; ++r) common = state.seen[row + r] < common ? state.seen[row + r] : common;
  if (common < range.begin) common = range.begin;
  weigh_all_lanes<R>(task, row, values, range.begin, common,
                     range.begin == 0 ? state.rescale + row : kSame, range.fresh, state);
  if constexpr (R > 1) {
    for (int r = 0; r < R; ++r) {
      const std::int64_t seen = state.seen[row + r];
      const std::int64_t end = seen < range.end ? seen : range.end;
      if (end > common) {
        weigh_all_lanes<1>(task, row + r, values, common, end, kSame, false, state);
      }
    }
  }
}

// Sums of all entries over `count` keys of the block; with few rows a few keys at a time, so that
// rows of the cache are read from end to end.
template <typename T>
void block_values(const AttentionTask& task, const T* values, std::int64_t count, bool fresh,
                  const AttentionState& state) {
  const std::int64_t step = task.rows <= kFewRows ? 8 : kKeyBlock;
  for (std::int64_t key = 0; key < count; key += step) {
    const KeyRange range{key, key + step < count ? key + step : count, fresh && key == 0};
    for (int head = 0; head < task.heads; ++head) {
      const T* head_values = values + head * task.head_dim;
      if (task.rows <= kFewRows) {
        prefetch_rows(task, head_values + (key + kAhead) * task.kv_stride, static_cast<int>(step));
      }
      int row = head * task.rows;
      const int end = row + task.rows;
      for (; row + 4 <= end; row += 4) weigh_rows<4>(task, row, head_values, range, state);
      for (; row + 2 <= end; row += 2) weigh_rows<2>(task, row, head_values, range, state);
      if (row < end) weigh_rows<1>(task, row, head_values, range, state);
    }
  }
}

// Adds one number a key to the scores of all entries.
inline void add_key_bias(const AttentionTask& task, std::int64_t block, std::int64_t count,
                         AttentionState& state) {
  for (int row = 0; row < task.heads * task.rows; ++row) {
    for (std::int64_t key = 0; key < count; ++key) {
      state.score[row][key] += task.key_bias[block + key];
    }
  }
}

// One block: scores, softmax, sums. Keys and values start at the block's first key.
template <typename T>
void attend_block(const AttentionTask& task, const T* keys, const T* values, std::int64_t block,
                  std::int64_t count, AttentionState& state) {
  block_scores(task, keys, count, state);
  if (task.key_bias != nullptr) add_key_bias(task, block, count, state);
  for (int row = 0; row < task.heads * task.rows; ++row) {
    const std::int64_t visible = task.visible[row] - block;
    state.seen[row] = visible < 0 ? 0 : visible < kKeyBlock ? visible : kKeyBlock;
    if (state.seen[row] > 0) {
      block_softmax(state, row, block == 0);
    } else {
      state.rescale[row] = 1.0f;
    }
  }
  block_values(task, values, count, block == 0, state);
}

// One head of `count` rows as f32 with another stride.
template <typename T>
void copy_rows(const T* from, std::int64_t stride, std::int64_t dim, std::int64_t count, float* to,
               std::int64_t pitch) {
  for (std::int64_t row = 0; row < count; ++row) {
    for (std::int64_t d = 0; d < dim; d += kLanes) {
      store_some(to + row * pitch + d, load_some(from + row * stride + d, dim - d), dim - d);
    }
  }
}

// One head of keys [block, block + count) as f32, wherever they stand.
template <typename T>
void copy_keys(const AttentionTask& given, const void* table, std::int64_t block,
               std::int64_t count, float* to, std::int64_t pitch) {
  const T* rows = static_cast<const T*>(table);
  std::int64_t in_order = given.listed == nullptr ? count : given.listed_from - block;
  in_order = in_order < 0 ? 0 : in_order < count ? in_order : count;
  copy_rows(rows + block * given.kv_stride, given.kv_stride, given.head_dim, in_order, to, pitch);
  for (std::int64_t key = in_order; key < count; ++key) {
    const std::int64_t row = given.listed[block + key - given.listed_from] - given.listed_base;
    copy_rows(rows + row * given.kv_stride, 0, given.head_dim, 1, to + key * pitch, pitch);
  }
}

// Queries and sums stand in scratch, packed. With many rows the block's keys and values do so too,
// and so do those of a block whose keys are listed.
template <typename T>
void attend(const AttentionTask& given) {
  AttentionState state;
  AttentionTask task = given;
  const int entries = task.heads * task.rows;
  const std::int64_t pitch = attention_pitch(task.head_dim);
  float* const copied_keys = task.scratch + 2 * kQueryRows * pitch;
  float* const copied_values = copied_keys + kKeyBlock * pitch;
  std::int64_t most = 0;
  for (int row = 0; row < entries; ++row) {
    float* q = task.scratch + 2 * row * pitch;
    copy_rows(given.q[row], 0, task.head_dim, 1, q, pitch);
    task.q[row] = q;
    task.out[row] = q + pitch;
    most = task.visible[row] > most ? task.visible[row] : most;
  }
  for (std::int64_t block = 0; block < most; block += kKeyBlock) {
    const T* keys = static_cast<const T*>(given.keys) + block * given.kv_stride;
    const T* values = static_cast<const T*>(given.values) + block * given.kv_stride;
    const std::int64_t count = most - block < kKeyBlock ? most - block : kKeyBlock;
    const bool listed = given.listed != nullptr && block + count > given.listed_from;
    const bool copies = listed || task.rows > kFewRows;
    task.kv_stride = copies ? pitch : given.kv_stride;
    if (copies) {
      copy_keys<T>(given, given.keys, block, count, copied_keys, pitch);
      copy_keys<T>(given, given.values, block, count, copied_values, pitch);
      attend_block<float>(task, copied_keys, copied_values, block, count, state);
    } else {
      attend_block<T>(task, keys, values, block, count, state);
    }
  }
  for (int row = 0; row < entries; ++row) {
    if (task.peak != nullptr) {
      given.peak[row] = state.peak[row];
      given.total[row] = state.total[row];
    }
    const V16 total = broadcast(state.total[row]);
    for (std::int64_t d = 0; d < task.head_dim; d += kLanes) {
      const std::int64_t lanes = task.head_dim - d;
      store_some(given.out[row] + d, div(load_some(task.out[row] + d, lanes), total), lanes);
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
