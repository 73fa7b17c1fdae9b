// exp, SiLU, three GELUs, the affine map of a GroupNorm, RMSNorm and LayerNorm on sixteen lanes.
// Tails use the same lanes, masked, so that a value does not depend on where in a row it stands.
#pragma once

#include "engine/backend/cpu/kernels/kernels.h"
#include "engine/backend/cpu/kernels/simd.h"
#include "engine/core/index.h"

namespace tessera::cpu {
namespace {

// e^x within 2 ulp. Below -126 ln 2 the result is 0 (denormals are not made), above 128 ln 2 it is
// infinite, NaN stays NaN. x = n ln 2 + r, |r| <= ln 2 / 2; e^r by its Taylor sum to r^7 (rest
// 5e-9); ln 2 in two parts (Cody & Waite 1980). kAny false: x is below 128 ln 2 or NaN.
template <bool kAny = true>
inline V16 exp(V16 x) {
  const V16 lowest = broadcast(-87.3365f);
  [[maybe_unused]] const V16 highest = broadcast(88.7228f);
  const V16 magic = broadcast(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  const V16 shifted = fma(x, broadcast(1.44269504f), magic);
  const V16 n = sub(shifted, magic);
  V16 r = fma(n, broadcast(-0.693145751953125f), x);
  r = fma(n, broadcast(-1.42860682e-6f), r);
  V16 sum = broadcast(1.0f / 5040.0f);
  sum = fma(sum, r, broadcast(1.0f / 720.0f));
  sum = fma(sum, r, broadcast(1.0f / 120.0f));
  sum = fma(sum, r, broadcast(1.0f / 24.0f));
  sum = fma(sum, r, broadcast(1.0f / 6.0f));
  sum = fma(sum, r, broadcast(0.5f));
  sum = fma(sum, r, broadcast(1.0f));
  sum = fma(sum, r, broadcast(1.0f));
  V16 out = add_exponent(sum, shifted);
  if constexpr (kAny) out = select_less(highest, x, broadcast(__builtin_inff()), out);
  out = select_less(x, lowest, zero(), out);
  return keep_nan(x, out);
}

// x / (1 + e^-x)
inline V16 silu(V16 x) { return div(x, add(broadcast(1.0f), exp(sub(zero(), x)))); }

// x Phi(x). erfc(a) = t exp(P(t) - a^2) with t = 1 / (1 + a / 2), a >= 0; P is the polynomial of
// degree 10 nearest to the exact exponent in the maximum norm on t in [0.13, 1], error 2e-8.
inline V16 gelu(V16 x) {
  const V16 one = broadcast(1.0f);
  const V16 half = broadcast(0.5f);
  const V16 a = mul(absolute(x), broadcast(0.70710678f));
  const V16 t = div(one, fma(a, half, one));
  V16 sum = broadcast(-0.126725544286f);
  sum = fma(sum, t, broadcast(0.879464265401f));
  sum = fma(sum, t, broadcast(-2.54110803147f));
  sum = fma(sum, t, broadcast(3.86032567009f));
  sum = fma(sum, t, broadcast(-3.18603374588f));
  sum = fma(sum, t, broadcast(1.43328821633f));
  sum = fma(sum, t, broadcast(-0.611981260298f));
  sum = fma(sum, t, broadcast(0.197652017837f));
  sum = fma(sum, t, broadcast(0.359481909386f));
  sum = fma(sum, t, broadcast(1.00118749457f));
  sum = fma(sum, t, broadcast(-1.2655509881f));
  const V16 tail = mul(mul(half, t), exp(fma(sub(zero(), a), a, sum)));
  return mul(x, select_less(x, zero(), tail, sub(one, tail)));
}

inline void silu_mul(const float* gate, const float* up, float* out, std::int64_t n) {
  for (std::int64_t i = 0; i < n; i += kLanes) {
    const V16 g = load_some(gate + i, n - i);
    store_some(out + i, mul(silu(g), load_some(up + i, n - i)), n - i);
  }
}

inline void gelu_row(const float* x, float* out, std::int64_t n) {
  for (std::int64_t i = 0; i < n; i += kLanes) {
    store_some(out + i, gelu(load_some(x + i, n - i)), n - i);
  }
}

// x / 2 (1 + tanh u), u = sqrt(2 / pi) (x + 0.044715 x^3), as x / (1 + e^-2u).
inline void gelu_tanh_row(const float* x, float* out, std::int64_t n) {
  for (std::int64_t i = 0; i < n; i += kLanes) {
    const V16 v = load_some(x + i, n - i);
    const V16 inner = fma(mul(v, v), broadcast(-0.0713548162726f), broadcast(-1.59576912161f));
    const V16 sigmoid = add(broadcast(1.0f), exp(mul(v, inner)));
    store_some(out + i, div(v, sigmoid), n - i);
  }
}

// x / (1 + e^-1.702x)
inline void quick_gelu_row(const float* x, float* out, std::int64_t n) {
  for (std::int64_t i = 0; i < n; i += kLanes) {
    const V16 v = load_some(x + i, n - i);
    const V16 sigmoid = add(broadcast(1.0f), exp(mul(v, broadcast(-1.702f))));
    store_some(out + i, div(v, sigmoid), n - i);
  }
}

template <bool kAffine, bool kSwish>
void affine_pixels(const float* x, const float* scale, const float* shift, float* out,
                   std::int64_t channels, std::int64_t pixels) {
  for (std::int64_t pixel = 0; pixel < pixels; ++pixel) {
    for (std::int64_t c = 0; c < channels; c += kLanes) {
      const std::int64_t n = channels - c;
      V16 y = load_some(x + c, n);
      if constexpr (kAffine) y = fma(load_some(scale + c, n), y, load_some(shift + c, n));
      if constexpr (kSwish) y = silu(y);
      store_some(out + c, y, n);
    }
    x += channels;
    out += channels;
  }
}

inline void affine(const float* x, const float* scale, const float* shift, bool swish, float* out,
                   std::int64_t channels, std::int64_t pixels) {
  if (scale != nullptr) {
    (swish ? affine_pixels<true, true> : affine_pixels<true, false>)(x, scale, shift, out, channels,
                                                                     pixels);
  } else {
    (swish ? affine_pixels<false, true> : affine_pixels<false, false>)(x, scale, shift, out,
                                                                       channels, pixels);
  }
}

// (x * (1 / sqrt(mean(x^2) + eps))) * weight
inline void rms_norm(const float* x, const float* weight, float eps, float* out, std::int64_t n) {
  V16 squares = zero();
  for (std::int64_t i = 0; i < n; i += kLanes) {
    const V16 v = load_some(x + i, n - i);
    squares = fma(v, v, squares);
  }
  const float mean = reduce_add(squares) / to_float(n);
  const V16 factor = broadcast(1.0f / __builtin_sqrtf(mean + eps));
  for (std::int64_t i = 0; i < n; i += kLanes) {
    const V16 v = mul(load_some(x + i, n - i), factor);
    store_some(out + i, mul(v, load_some(weight + i, n - i)), n - i);
  }
}

// (x - mean) * (1 / sqrt(mean((x - mean)^2) + eps)) * weight + bias
inline void layer_norm(const float* x, const float* weight, const float* bias, float eps,
                       float* out, std::int64_t n) {
  V16 sum = zero();
  for (std::int64_t i = 0; i < n; i += kLanes) sum = add(sum, load_some(x + i, n - i));
  alignas(64) float means[kLanes];  // so that the lanes after the end subtract nothing
  store(means, broadcast(reduce_add(sum) / to_float(n)));
  V16 squares = zero();
  for (std::int64_t i = 0; i < n; i += kLanes) {
    const V16 v = sub(load_some(x + i, n - i), load_some(means, n - i));
    squares = fma(v, v, squares);
  }
  const float variance = reduce_add(squares) / to_float(n);
  const V16 factor = broadcast(1.0f / __builtin_sqrtf(variance + eps));
  const V16 mean = load(means);
  for (std::int64_t i = 0; i < n; i += kLanes) {
    const V16 v = mul(sub(load_some(x + i, n - i), mean), factor);
    store_some(out + i, fma(v, load_some(weight + i, n - i), load_some(bias + i, n - i)), n - i);
  }
}

// Sixteen partial sums and one tree, as the scores of attention.h.
inline float dot(const float* a, const float* b, std::int64_t n) {
  V16 sum = zero();
  for (std::int64_t i = 0; i < n; i += kLanes) {
    sum = fma(load_some(a + i, n - i), load_some(b + i, n - i), sum);
  }
  return reduce_add(sum);
}

}  // namespace
}  // namespace tessera::cpu
