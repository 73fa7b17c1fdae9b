// Softmax attention of a few query rows over neighbouring key and value heads, with the running
// maximum and sum of Milakov & Gimelshein (2018) taken over blocks of 64 keys that start at
// multiples of 64. A row's result depends on the keys it sees alone: not on the rows and heads
// next to it nor on later keys, which are neither read into its sum nor multiplied by zero. The
// heads of one position lie side by side in memory and are read in that order.
#pragma once

#include "engine/backend/cpu/kernels/attention_scores.h"
#include "engine/backend/cpu/kernels/elementwise.h"
#include "engine/backend/cpu/kernels/kernels.h"
#include "engine/backend/cpu/kernels/simd.h"
#include "engine/core/index.h"

namespace tessera::cpu {
namespace {

constexpr std::int64_t kAhead = 8;  // keys between the one that is read and the one asked for

struct alignas(64) AttentionState {
  float score[kTaskRows][kKeyBlock];
  std::int64_t seen[kTaskRows];  // keys of this block that the row sees, 0..64
  float peak[kTaskRows];         // largest score so far
  float total[kTaskRows];        // sum of exp(score - peak) so far
  float rescale[kTaskRows];      // what sums taken before this block are multiplied by
};

// What the numbers of a head are multiplied by, where they are integers of 8 bits. It goes to scores
// and weights, so that sums run over integers, which f32 has exactly.
inline float scale_of(const AttentionTask& task, const std::int8_t* head) {
  float scale;
  std::memcpy(&scale, head + task.head_dim, sizeof scale);
  return scale;
}
// A copied head has it in the gap at its end.
inline float scale_of(const AttentionTask& task, const float* head) {
  return head[task.kv_stride - 1];
}
inline float scale_of(const AttentionTask&, const std::uint16_t*) { return 1.0f; }

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

// q.k for R rows and K keys; each product is sixteen partial sums and one fixed tree. kScaled: heads
// have scales.
template <bool kScaled, int R, int K, typename T>
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
    for (int k = 0; k < K; ++k) {
      float score = reduce_add(sum[r][k]) * scale;
      if constexpr (kScaled) score *= scale_of(task, keys + (key + k) * task.kv_stride);
      state.score[row + r][key + k] = score;
    }
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
template <bool kScaled, typename T>
void block_scores(const AttentionTask& task, const T* keys, std::int64_t count,
                  AttentionState& state) {
  std::int64_t key = 0;
  for (; key + 4 <= count; key += 4) {
    for (int head = 0; head < task.heads; ++head) {
      const T* head_keys = keys + head * task.head_stride;
      if (task.rows <= kFewRows) {
        prefetch_rows(task, head_keys + (key + kAhead) * task.kv_stride, 4);
      }
      int row = head * task.rows;
      const int end = row + task.rows;
      for (; row + 2 <= end; row += 2) {
        scores<kScaled, 2, 2>(task, row, head_keys, key, task.scale, state);
        scores<kScaled, 2, 2>(task, row, head_keys, key + 2, task.scale, state);
      }
      if (row < end) scores<kScaled, 1, 4>(task, row, head_keys, key, task.scale, state);
    }
  }
  for (; key < count; ++key) {
    for (int row = 0; row < task.heads * task.rows; ++row) {
      const T* head_keys = keys + row / task.rows * task.head_stride;
      scores<kScaled, 1, 1>(task, row, head_keys, key, task.scale, state);
    }
  }
}

// Scores of many rows of one head against keys that were turned; rows that see none are left out.
inline void block_scores(const AttentionTask& task, const float* turned, AttentionState& state) {
  constexpr int kRows = kVectorLanes == 16 ? 4 : 1;
  const std::int64_t chunks = (task.head_dim + kLanes - 1) / kLanes;
  const std::int64_t stride = task.q[1] - task.q[0];
  for (int row = 0; row < task.rows; row += kRows) {
    const int rows = task.rows - row < kRows ? task.rows - row : kRows;
    std::int64_t seen = 0;
    for (int r = row; r < row + rows; ++r) seen = state.seen[r] > seen ? state.seen[r] : seen;
    for (std::int64_t key = 0; key < seen; key += kLanes) {
      if (rows == kRows) {
        turned_scores<kRows>(task.q[row], stride, turned + key, chunks, task.scale,
                             state.score[row] + key);
        continue;
      }
      for (int r = row; r < row + rows; ++r) {
        turned_scores<1>(task.q[r], stride, turned + key, chunks, task.scale, state.score[r] + key);
      }
    }
  }
}

// The largest of `peak` and a block of scores; NaN among the scores is passed over.
inline float largest_score(const float* score, float peak) {
  const V16 low = max(load(score + kLanes), max(load(score), broadcast(peak)));
  return reduce_max(max(load(score + 3 * kLanes), max(load(score + 2 * kLanes), low)));
}

// Turns scores of all entries into exp(score - peak) and updates peak, total and rescale. Each step is
// taken for all of them before the next one, so that none waits for a chain of another.
inline void block_softmax(AttentionState& state, int entries, bool first) {
  float peak[kTaskRows];
  for (int row = 0; row < entries; ++row) {
    float* score = state.score[row];
    for (std::int64_t key = state.seen[row]; key < kKeyBlock; ++key) {
      score[key] = -__builtin_inff();
    }
    peak[row] = largest_score(score, first ? score[0] : state.peak[row]);
  }
  for (int row = 0; row < entries; row += kLanes) {
    const std::int64_t rows = entries - row;
    const V16 change =
        first ? zero() : exp(sub(load_some(state.peak + row, rows), load_some(peak + row, rows)));
    store_some(state.rescale + row, change, rows);
  }
  for (int row = 0; row < entries; ++row) {
    if (state.seen[row] == 0) {
      state.rescale[row] = 1.0f;
      continue;
    }
    float* score = state.score[row];
    V16 part[4];
    for (int i = 0; i < 4; ++i) {
      part[i] = exp<false>(sub(load(score + i * kLanes), broadcast(peak[row])));
      store(score + i * kLanes, part[i]);
    }
    const float sum = reduce_add(add(add(part[0], part[1]), add(part[2], part[3])));
    state.total[row] = first ? sum : state.total[row] * state.rescale[row] + sum;
    state.peak[row] = peak[row];
  }
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
  constexpr int kChunks = kVectorLanes == 16 ? 4 : 4 / R;
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

// Scores or weights of keys [begin, end) of one head's rows times the scales of its keys or values.
template <typename T>
void times_scales(const AttentionTask& task, int head, const T* values, std::int64_t begin,
                   std::int64_t end, AttentionState& state) {
  alignas(64) float scales[kKeyBlock];
  for (std::int64_t key = begin; key < end; ++key) {
    scales[key - begin] = scale_of(task, values + key * task.kv_stride);
  }
  for (int row = head * task.rows; row < (head + 1) * task.rows; ++row) {
    float* const weights = state.score[row] + begin;
    for (std::int64_t key = 0; key < end - begin; key += kLanes) {
      const std::int64_t lanes = end - begin - key;
      store_some(weights + key, mul(load_some(weights + key, lanes), load_some(scales + key, lanes)),
                 lanes);
    }
  }
}

// Sums of all entries over `count` keys of the block; with few rows a few keys at a time, so that
// rows of the cache are read from end to end.
template <bool kScaled, typename T>
void block_values(const AttentionTask& task, const T* values, std::int64_t count, bool fresh,
                  AttentionState& state) {
  const std::int64_t step = task.rows <= kFewRows ? 8 : kKeyBlock;
  for (std::int64_t key = 0; key < count; key += step) {
    const KeyRange range{key, key + step < count ? key + step : count, fresh && key == 0};
    for (int head = 0; head < task.heads; ++head) {
      const T* head_values = values + head * task.head_stride;
      if (task.rows <= kFewRows) {
        prefetch_rows(task, head_values + (key + kAhead) * task.kv_stride, static_cast<int>(step));
      }
      if constexpr (kScaled) {
        times_scales(task, head, head_values, range.begin, range.end, state);
      }
      int row = head * task.rows;
      const int end = row + task.rows;
      for (; row + 4 <= end; row += 4) weigh_rows<4>(task, row, head_values, range, state);
      for (; row + 2 <= end; row += 2) weigh_rows<2>(task, row, head_values, range, state);
      if (row < end) weigh_rows<1>(task, row, head_values, range, state);
    }
  }
}

// Adds one number a key to the scores of each entry.
inline void add_key_bias(const AttentionTask& task, std::int64_t block, std::int64_t count,
                         AttentionState& state) {
  for (int row = 0; row < task.heads * task.rows; ++row) {
    for (std::int64_t key = 0; key < count; ++key) {
      state.score[row][key] += task.key_bias[row][block + key];
    }
  }
}

// One block: scores, softmax, sums. Keys and values start at the block's first key; `turned` are
// the same keys turned, or null; then only scales are read from `keys`.
template <bool kScaled, typename T>
void attend_block(const AttentionTask& task, const T* keys, const T* values, const float* turned,
                  std::int64_t block, std::int64_t count, AttentionState& state) {
  for (int row = 0; row < task.heads * task.rows; ++row) {
    const std::int64_t visible = task.visible[row] - block;
    state.seen[row] = visible < 0 ? 0 : visible < kKeyBlock ? visible : kKeyBlock;
  }
  if (turned != nullptr) {
    block_scores(task, turned, state);
    if constexpr (kScaled) times_scales(task, 0, keys, 0, count, state);
  } else {
    block_scores<kScaled>(task, keys, count, state);
  }
  if (task.biased) add_key_bias(task, block, count, state);
  block_softmax(state, task.heads * task.rows, block == 0);
  block_values<kScaled>(task, values, count, block == 0, state);
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
  if constexpr (sizeof(T) == sizeof(std::int8_t)) {
    for (std::int64_t key = 0; key < count; ++key) {
      const std::int64_t row =
          key < in_order
              ? block + key
              : given.listed[block + key - given.listed_from] - given.listed_base;
      to[(key + 1) * pitch - 1] = scale_of(given, rows + row * given.kv_stride);
    }
  }
}

// Queries and sums stand in scratch, packed. With many rows the block's keys and values do so too,
// and so do those of a block whose keys are listed.
template <typename T>
void attend(const AttentionTask& given) {
  constexpr bool kScaled = sizeof(T) == sizeof(std::int8_t);
  AttentionState state;
  AttentionTask task = given;
  const int entries = task.heads * task.rows;
  const std::int64_t pitch = attention_pitch(task.head_dim);
  float* const copied_keys = task.scratch + 2 * kTaskRows * pitch;
  float* const copied_values = copied_keys + kKeyBlock * pitch;
  float* const turned = task.rows > kFewRows ? copied_values + kKeyBlock * pitch : nullptr;
  std::int64_t most = 0;
  for (int row = 0; row < entries; ++row) {
    float* q = task.scratch + 2 * row * pitch;
    store(q + pitch - 2 * kLanes, zero());  // the last chunk's dimensions past the end
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
      copy_keys<T>(given, given.values, block, count, copied_values, pitch);
      bool in_place = false;  // keys are turned where they are
      if constexpr (!kScaled) {
        in_place = turned != nullptr && !listed;
        if (in_place) turn_keys(keys, given.kv_stride, task.head_dim, count, turned);
      }
      if (!in_place) {
        copy_keys<T>(given, given.keys, block, count, copied_keys, pitch);
        if (turned != nullptr) turn_keys(copied_keys, pitch, task.head_dim, count, turned);
      }
      attend_block<kScaled>(task, copied_keys, copied_values, turned, block, count, state);
    } else {
      attend_block<kScaled>(task, keys, values, nullptr, block, count, state);
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
  switch (task.numbers) {
    case HeadNumbers::kF32: return attend<float>(task);
    case HeadNumbers::kBF16: return attend<std::uint16_t>(task);
    case HeadNumbers::kScaled: return attend<std::int8_t>(task);
  }
}

}  // namespace
}  // namespace tessera::cpu
