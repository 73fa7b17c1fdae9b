// Scores of many query rows against a block of keys. The keys are turned first, so that a lane is a
// key and not a dimension: what the tree of reduce_add sums across lanes is then summed lane by
// lane, sixteen keys at once, in the same order and to the same bits.
#pragma once

#include "engine/backend/cpu/kernels/kernels.h"
#include "engine/backend/cpu/kernels/simd.h"

namespace tessera::cpu {
namespace {

inline float number(float x) { return x; }
inline float number(std::uint16_t bf16) { return float_of(std::uint32_t{bf16} << 16); }

#if defined(__AVX2__)

inline __m256 load_eight(const float* p) { return _mm256_loadu_ps(p); }
inline __m256 load_eight(const std::uint16_t* p) {
  const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

// out[i][j] = in[j][i] for 8 x 8 numbers.
template <typename T>
void turn_eight(const T* in, std::int64_t in_stride, float* out, std::int64_t out_stride) {
  __m256 row[8], pair[8], four[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) row[i] = load_eight(in + i * in_stride);
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {
    pair[i] = _mm256_unpacklo_ps(row[i], row[i + 1]);
    pair[i + 1] = _mm256_unpackhi_ps(row[i], row[i + 1]);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4) {
    four[i] = _mm256_shuffle_ps(pair[i], pair[i + 2], 0x44);
    four[i + 1] = _mm256_shuffle_ps(pair[i], pair[i + 2], 0xee);
    four[i + 2] = _mm256_shuffle_ps(pair[i + 1], pair[i + 3], 0x44);
    four[i + 3] = _mm256_shuffle_ps(pair[i + 1], pair[i + 3], 0xee);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m256 low = _mm256_permute2f128_ps(four[i], four[i + 4], 0x20);
    const __m256 high = _mm256_permute2f128_ps(four[i], four[i + 4], 0x31);
    _mm256_storeu_ps(out + i * out_stride, low);
    _mm256_storeu_ps(out + (i + 4) * out_stride, high);
  }
}

#else

template <typename T>
void turn_eight(const T* in, std::int64_t in_stride, float* out, std::int64_t out_stride) {
  for (int i = 0; i < 8; ++i) {
    for (int j = 0; j < 8; ++j) out[i * out_stride + j] = number(in[j * in_stride + i]);
  }
}

#endif

// Keys [count][pitch] to [dimensions][kKeyBlock]: zeros up to a multiple of 16 dimensions and keys.
template <typename T>
void turn_keys(const T* keys, std::int64_t pitch, std::int64_t dim, std::int64_t count,
               float* out) {
  for (std::int64_t key = 0; key < count; key += 8) {
    for (std::int64_t d = 0; d < dim; d += 8) {
      if (key + 8 <= count && d + 8 <= dim) {
        turn_eight(keys + key * pitch + d, pitch, out + d * kKeyBlock + key, kKeyBlock);
        continue;
      }
      for (int i = 0; i < 64; ++i) {
        const std::int64_t k = key + i % 8, at = d + i / 8;
        out[at * kKeyBlock + k] = k < count && at < dim ? number(keys[k * pitch + at]) : 0.0f;
      }
    }
  }
  for (std::int64_t d = (dim + 7) / 8 * 8; d % kLanes != 0; ++d) {
    for (std::int64_t key = 0; key < kKeyBlock; ++key) out[d * kKeyBlock + key] = 0.0f;
  }
  if (count % kLanes == 0 || count % kLanes > 8) return;
  for (std::int64_t d = 0; d < dim; ++d) {
    store_partial(out + d * kKeyBlock + (count + 7) / 8 * 8, zero(), 8);
  }
}

// Lanes `first`, `first` + 4, + 8 and + 12 of q.k for R rows and sixteen keys, as reduce_add joins
// them. `chunks` chunks of sixteen dimensions.
template <int R>
inline void lane_sums(const float* q, std::int64_t q_stride, const float* turned,
                      std::int64_t chunks, int first, V16 (&out)[R]) {
  V16 sum[4][R];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) sum[i][r] = zero();
  }
  q += first;
  turned += first * kKeyBlock;
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const V16 keys = load(turned + 4 * i * kKeyBlock);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        sum[i][r] = fma(broadcast(q[r * q_stride + 4 * i]), keys, sum[i][r]);
      }
    }
    q += kLanes;
    turned += kLanes * kKeyBlock;
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    out[r] = add(add(sum[0][r], sum[2][r]), add(sum[1][r], sum[3][r]));
  }
}

// score[r][key] of R rows of queries against sixteen keys; q is zero up to a multiple of 16
// dimensions, `scores` are kKeyBlock apart.
template <int R>
void turned_scores(const float* q, std::int64_t q_stride, const float* turned, std::int64_t chunks,
                   float scale, float* scores) {
  V16 even[R], odd[R], part[R];
  lane_sums<R>(q, q_stride, turned, chunks, 0, even);
  lane_sums<R>(q, q_stride, turned, chunks, 2, part);
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) even[r] = add(even[r], part[r]);
  lane_sums<R>(q, q_stride, turned, chunks, 1, odd);
  lane_sums<R>(q, q_stride, turned, chunks, 3, part);
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    const V16 total = add(even[r], add(odd[r], part[r]));
    store(scores + r * kKeyBlock, mul(total, broadcast(scale)));
  }
}

}  // namespace
}  // namespace tessera::cpu
