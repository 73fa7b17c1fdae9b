// Sixteen float lanes for whatever instruction set this file is compiled for. Included by the
// kernels_*.cpp files only. All three variants give the same bits: fma rounds once everywhere, and
// reduce_add is one fixed tree.
#pragma once

#include <cstdint>
#include <cstring>

#include "engine/backend/cpu/kernels/kernels.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace tessera::cpu {
namespace {

// Bits of a float as an integer and back, without <bit>: nothing here may emit a shared symbol.
[[maybe_unused]] inline std::uint32_t bits_of(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}
[[maybe_unused]] inline float float_of(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

#if defined(__AVX512F__)

constexpr int kVectorLanes = 16;  // of one register

struct V16 {
  __m512 v;
};
inline __mmask16 lanes_below(std::int64_t n) {
  return static_cast<__mmask16>((1u << static_cast<unsigned>(n)) - 1u);
}
inline V16 zero() { return {_mm512_setzero_ps()}; }
inline V16 broadcast(float x) { return {_mm512_set1_ps(x)}; }
inline V16 load(const float* p) { return {_mm512_loadu_ps(p)}; }
inline V16 load_partial(const float* p, std::int64_t n) {
  return {_mm512_maskz_loadu_ps(lanes_below(n), p)};
}
inline V16 load(const std::uint16_t* p) {
  const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16))};
}
inline V16 load_partial(const std::uint16_t* p, std::int64_t n) {
  const __m256i half = _mm256_maskz_loadu_epi16(lanes_below(n), p);
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16))};
}
// 16 f16, exact.
inline V16 load_halves(const std::uint8_t* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
inline V16 load_panel(const float* p) { return load(p); }
inline V16 load_panel(const std::uint16_t* p) {
  const __m512i pair =
      _mm512_broadcast_i64x4(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  const __m512i shift = _mm512_set_epi32(0, 0, 0, 0, 0, 0, 0, 0, 16, 16, 16, 16, 16, 16, 16, 16);
  const __m512i high = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
  return {_mm512_castsi512_ps(_mm512_and_si512(_mm512_sllv_epi32(pair, shift), high))};
}
inline void store(float* p, V16 x) { _mm512_storeu_ps(p, x.v); }
inline void store_partial(float* p, V16 x, std::int64_t n) {
  _mm512_mask_storeu_ps(p, lanes_below(n), x.v);
}
inline V16 fma(V16 a, V16 b, V16 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline V16 add(V16 a, V16 b) { return {_mm512_add_ps(a.v, b.v)}; }
inline V16 sub(V16 a, V16 b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline V16 mul(V16 a, V16 b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline V16 div(V16 a, V16 b) { return {_mm512_div_ps(a.v, b.v)}; }
// a > b ? a : b, so b where either is NaN.
inline V16 max(V16 a, V16 b) { return {_mm512_max_ps(a.v, b.v)}; }
// a < b ? yes : no, so `no` where either is NaN.
inline V16 select_less(V16 a, V16 b, V16 yes, V16 no) {
  return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ), no.v, yes.v)};
}
// x where x is NaN, else y.
inline V16 keep_nan(V16 x, V16 y) {
  return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(x.v, x.v, _CMP_UNORD_Q), y.v, x.v)};
}
inline V16 absolute(V16 x) {
  return {_mm512_castsi512_ps(
      _mm512_and_si512(_mm512_castps_si512(x.v), _mm512_set1_epi32(0x7fffffff)))};
}
// Adds the low bits of `shifted` to the exponent of x.
inline V16 add_exponent(V16 x, V16 shifted) {
  return {_mm512_castsi512_ps(_mm512_add_epi32(
      _mm512_castps_si512(x.v), _mm512_slli_epi32(_mm512_castps_si512(shifted.v), 23)))};
}
inline float reduce_add(V16 x) {
  const __m256 low = _mm512_castps512_ps256(x.v);
  const __m256 high = _mm512_extractf32x8_ps(x.v, 1);
  const __m256 eight = _mm256_add_ps(low, high);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

#elif defined(__AVX2__)

constexpr int kVectorLanes = 8;  // of one register

struct V16 {
  __m256 lo, hi;
};
inline __m256i lanes_below(std::int64_t n) {
  const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), index);
}
inline V16 zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline V16 broadcast(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline V16 load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline V16 load_partial(const float* p, std::int64_t n) {
  return {_mm256_maskload_ps(p, lanes_below(n)), _mm256_maskload_ps(p + 8, lanes_below(n - 8))};
}
inline __m256 widen(__m128i half) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}
inline V16 load(const std::uint16_t* p) {
  return {widen(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
          widen(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)))};
}
inline V16 load_partial(const std::uint16_t* p, std::int64_t n) {
  std::uint16_t padded[16] = {};
  std::memcpy(padded, p, static_cast<std::size_t>(n) * sizeof *p);
  return load(padded);
}
inline V16 load_halves(const std::uint8_t* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
          _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 16)))};
}
inline V16 load_panel(const float* p) { return load(p); }
inline V16 load_panel(const std::uint16_t* p) {
  const __m256i pair = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  const __m256i high = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
  return {_mm256_castsi256_ps(_mm256_slli_epi32(pair, 16)),
          _mm256_castsi256_ps(_mm256_and_si256(pair, high))};
}
inline void store(float* p, V16 x) {
  _mm256_storeu_ps(p, x.lo);
  _mm256_storeu_ps(p + 8, x.hi);
}
inline void store_partial(float* p, V16 x, std::int64_t n) {
  _mm256_maskstore_ps(p, lanes_below(n), x.lo);
  _mm256_maskstore_ps(p + 8, lanes_below(n - 8), x.hi);
}
inline V16 fma(V16 a, V16 b, V16 c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
inline V16 add(V16 a, V16 b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
inline V16 sub(V16 a, V16 b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
inline V16 mul(V16 a, V16 b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
inline V16 div(V16 a, V16 b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
// a > b ? a : b, so b where either is NaN.
inline V16 max(V16 a, V16 b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
inline __m256 select_less(__m256 a, __m256 b, __m256 yes, __m256 no) {
  return _mm256_blendv_ps(no, yes, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
}
// a < b ? yes : no, so `no` where either is NaN.
inline V16 select_less(V16 a, V16 b, V16 yes, V16 no) {
  return {select_less(a.lo, b.lo, yes.lo, no.lo), select_less(a.hi, b.hi, yes.hi, no.hi)};
}
inline __m256 keep_nan(__m256 x, __m256 y) {
  return _mm256_blendv_ps(y, x, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
}
// x where x is NaN, else y.
inline V16 keep_nan(V16 x, V16 y) { return {keep_nan(x.lo, y.lo), keep_nan(x.hi, y.hi)}; }
inline V16 absolute(V16 x) {
  const __m256 mask = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
  return {_mm256_and_ps(x.lo, mask), _mm256_and_ps(x.hi, mask)};
}
inline __m256 add_exponent(__m256 x, __m256 shifted) {
  return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(x),
                                              _mm256_slli_epi32(_mm256_castps_si256(shifted), 23)));
}
// Adds the low bits of `shifted` to the exponent of x.
inline V16 add_exponent(V16 x, V16 shifted) {
  return {add_exponent(x.lo, shifted.lo), add_exponent(x.hi, shifted.hi)};
}
inline float reduce_add(V16 x) {
  const __m256 eight = _mm256_add_ps(x.lo, x.hi);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

#else

constexpr int kVectorLanes = 1;  // of one register

struct V16 {
  float v[16];
};
template <typename F>
inline V16 each_lane(F value) {
  V16 out;
  for (int i = 0; i < 16; ++i) out.v[i] = value(i);
  return out;
}
inline float widen(std::uint16_t bits) { return float_of(std::uint32_t{bits} << 16); }
inline float widen(float value) { return value; }
inline V16 zero() { return V16{}; }
inline V16 broadcast(float x) {
  return each_lane([&](int) { return x; });
}
template <typename T>
inline V16 load(const T* p) {
  return each_lane([&](int i) { return widen(p[i]); });
}
template <typename T>
inline V16 load_partial(const T* p, std::int64_t n) {
  return each_lane([&](int i) { return i < n ? widen(p[i]) : 0.0f; });
}
// f16 to f32, exact.
inline float float_of_half(std::uint32_t half) {
  const std::uint32_t sign = (half & 0x8000u) << 16, exponent = (half >> 10) & 31u,
                      mantissa = half & 0x3ffu;
  if (exponent == 31) return float_of(sign | 0x7f800000u | mantissa << 13);
  if (exponent != 0) return float_of(sign | (exponent + 112) << 23 | mantissa << 13);
  const float tiny = static_cast<float>(mantissa) * (1.0f / 16777216.0f);
  return float_of(bits_of(tiny) | sign);
}
inline V16 load_halves(const std::uint8_t* p) {
  return each_lane([&](int i) {
    std::uint16_t half;
    std::memcpy(&half, p + 2 * i, sizeof half);
    return float_of_half(half);
  });
}
inline V16 load_panel(const float* p) { return load(p); }
inline V16 load_panel(const std::uint16_t* p) {
  return each_lane([&](int i) { return widen(p[i < 8 ? 2 * i : 2 * (i - 8) + 1]); });
}
inline void store(float* p, V16 x) { std::memcpy(p, x.v, sizeof x.v); }
inline void store_partial(float* p, V16 x, std::int64_t n) {
  for (std::int64_t i = 0; i < n && i < 16; ++i) p[i] = x.v[i];
}
inline V16 fma(V16 a, V16 b, V16 c) {
  return each_lane([&](int i) { return __builtin_fmaf(a.v[i], b.v[i], c.v[i]); });
}
inline V16 add(V16 a, V16 b) {
  return each_lane([&](int i) { return a.v[i] + b.v[i]; });
}
inline V16 sub(V16 a, V16 b) {
  return each_lane([&](int i) { return a.v[i] - b.v[i]; });
}
inline V16 mul(V16 a, V16 b) {
  return each_lane([&](int i) { return a.v[i] * b.v[i]; });
}
inline V16 div(V16 a, V16 b) {
  return each_lane([&](int i) { return a.v[i] / b.v[i]; });
}
// a > b ? a : b, so b where either is NaN.
inline V16 max(V16 a, V16 b) {
  return each_lane([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
}
// a < b ? yes : no, so `no` where either is NaN.
inline V16 select_less(V16 a, V16 b, V16 yes, V16 no) {
  return each_lane([&](int i) { return a.v[i] < b.v[i] ? yes.v[i] : no.v[i]; });
}
// x where x is NaN, else y.
inline V16 keep_nan(V16 x, V16 y) {
  return each_lane([&](int i) { return x.v[i] != x.v[i] ? x.v[i] : y.v[i]; });
}
inline V16 absolute(V16 x) {
  return each_lane([&](int i) { return float_of(bits_of(x.v[i]) & 0x7fffffffu); });
}
// Adds the low bits of `shifted` to the exponent of x.
inline V16 add_exponent(V16 x, V16 shifted) {
  return each_lane(
      [&](int i) { return float_of(bits_of(x.v[i]) + (bits_of(shifted.v[i]) << 23)); });
}
inline float reduce_add(V16 x) {
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) x.v[i] += x.v[i + half];
  }
  return x.v[0];
}

#endif

// A weight kept as f16, columns of a panel in their order.
struct Half {
  std::uint8_t bits[2];
};
[[maybe_unused]] inline V16 load_panel(const Half* p) { return load_halves(p->bits); }

// The first n lanes of p, n in 1..16; kWhole says at compile time that n is 16.
template <bool kWhole, typename T>
inline V16 load_lanes(const T* p, std::int64_t n) {
  if constexpr (kWhole) {
    return load(p);
  } else {
    return load_partial(p, n);
  }
}
template <bool kWhole>
inline void store_lanes(float* p, V16 x, std::int64_t n) {
  if constexpr (kWhole) {
    store(p, x);
  } else {
    store_partial(p, x, n);
  }
}

// The same where n is known at run time only, n >= 1.
template <typename T>
inline V16 load_some(const T* p, std::int64_t n) {
  return n >= kLanes ? load(p) : load_partial(p, n);
}
inline void store_some(float* p, V16 x, std::int64_t n) {
  if (n >= kLanes) {
    store(p, x);
  } else {
    store_partial(p, x, n);
  }
}

}  // namespace
}  // namespace tessera::cpu
