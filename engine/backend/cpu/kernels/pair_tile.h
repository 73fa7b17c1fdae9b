// The register tile of products whose inputs and weights are both bf16: R rows times P panels of 16
// columns. Inputs go in pairs. Of a pair the second product is added first, then the first one,
// each exact before its sum is rounded to f32, nearest even: the order of vdpbf16ps. Pairs of a
// block of 256 inputs are one chain, blocks are added in order. R, P and the instruction set change
// speed, not results.
//
// Numbers below 2^-126: inputs and weights hold none, for rounding and packing made them zeros with
// their sign. A sum that would be one becomes a zero with its sign after every step, as in the
// instruction. The other tables do the same: processors by their own mode, portable code in words.
#pragma once

#include <bit>

#include "engine/backend/cpu/kernels/kernels.h"
#include "engine/backend/cpu/kernels/simd.h"

namespace tessera::cpu {
namespace {

constexpr std::int64_t kPairWeights = 2 * kLanes;  // of a panel and a pair of inputs
constexpr std::int64_t kPairsAhead = kBlock / 2;   // weights are asked for a block before its turn

#if defined(__AVX2__)

// Sums below 2^-126 become zeros until the mode that is returned is given back. What is called
// meanwhile is no inline function; a class that gave it back would need a handler of exceptions.
inline unsigned begin_tiny_to_zero() {
  constexpr unsigned kFlush = 0x8000u, kZeroInputs = 0x0040u;
  const unsigned mode = _mm_getcsr();
  _mm_setcsr(mode | kFlush | kZeroInputs);
  return mode;
}
inline void end_tiny_to_zero(unsigned mode) { _mm_setcsr(mode); }
inline V16 add_step(V16 x, V16 weight, V16 sum) { return fma(x, weight, sum); }
inline V16 add_sums(V16 a, V16 b) { return add(a, b); }

#else

inline unsigned begin_tiny_to_zero() { return 0; }
inline void end_tiny_to_zero(unsigned) {}
constexpr float kLeastNormal = 1.17549435082228750797e-38f;  // 2^-126
inline float tiny_to_zero(float x) {
  const std::uint32_t bits = bits_of(x);
  return (bits & 0x7f800000u) == 0 ? float_of(bits & 0x80000000u) : x;
}
// What comes out as 2^-126 counts as smaller where it is so with a wider exponent: processors look
// at the sum rounded to 24 bits, not at where denormals round.
inline float add_step(float x, float weight, float sum) {
  const float out = __builtin_fmaf(x, weight, sum);
  if (float_of(bits_of(out) & 0x7fffffffu) != kLeastNormal) return tiny_to_zero(out);
  const double exact =
      double{x} * double{weight} + double{sum};
  constexpr double kEdge = double{kLeastNormal} * (1.0 - 1.0 / 33554432.0);
  const bool below = (exact < 0 ? -exact : exact) < kEdge;
  return below ? float_of(bits_of(out) & 0x80000000u) : out;
}
inline V16 add_step(V16 x, V16 weight, V16 sum) {
  return each_lane([&](int i) { return add_step(x.v[i], weight.v[i], sum.v[i]); });
}
inline V16 add_sums(V16 a, V16 b) {
  return each_lane(
      [&](int i) { return tiny_to_zero(tiny_to_zero(a.v[i]) + tiny_to_zero(b.v[i])); });
}

#endif

#if defined(__AVX512BF16__)

// A pair of bf16 in each of 16 lanes.
struct Pairs {
  __m512i v;
};
inline Pairs load_pairs(const std::uint16_t* p) { return {_mm512_loadu_si512(p)}; }
// The last input where their number is odd: it stands alone, and zeros next to it.
inline Pairs load_singles(const std::uint16_t* p) {
  return {_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
inline Pairs broadcast_pair(std::uint32_t pair) {
  return {_mm512_set1_epi32(std::bit_cast<int>(pair))};
}
inline V16 add_pairs(V16 sum, Pairs x, Pairs weights) {
  return {_mm512_dpbf16_ps(sum.v, reinterpret_cast<__m512bh>(x.v),
                           reinterpret_cast<__m512bh>(weights.v))};
}

#else

struct Pairs {
  V16 first, second;
};
inline V16 add_pairs(V16 sum, const Pairs& x, const Pairs& weights) {
  return add_step(x.first, weights.first, add_step(x.second, weights.second, sum));
}
inline Pairs broadcast_pair(std::uint32_t pair) {
  return {broadcast(float_of(pair << 16)), broadcast(float_of(pair & 0xffff0000u))};
}

#if defined(__AVX512F__)

inline Pairs load_pairs(const std::uint16_t* p) {
  const __m512i both = _mm512_loadu_si512(p);
  const __m512i high = _mm512_set1_epi32(std::bit_cast<int>(0xffff0000u));
  return {{_mm512_castsi512_ps(_mm512_slli_epi32(both, 16))},
          {_mm512_castsi512_ps(_mm512_and_si512(both, high))}};
}

#elif defined(__AVX2__)

inline Pairs load_pairs(const std::uint16_t* p) {
  const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  const __m256i high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + kLanes));
  const __m256i mask = _mm256_set1_epi32(std::bit_cast<int>(0xffff0000u));
  return {{_mm256_castsi256_ps(_mm256_slli_epi32(low, 16)),
           _mm256_castsi256_ps(_mm256_slli_epi32(high, 16))},
          {_mm256_castsi256_ps(_mm256_and_si256(low, mask)),
           _mm256_castsi256_ps(_mm256_and_si256(high, mask))}};
}

#else

inline Pairs load_pairs(const std::uint16_t* p) {
  return {each_lane([&](int i) { return widen(p[2 * i]); }),
          each_lane([&](int i) { return widen(p[2 * i + 1]); })};
}

#endif

inline Pairs load_singles(const std::uint16_t* p) { return {load(p), zero()}; }

#endif

// A block of at most kBlock inputs of R rows against P panels.
struct PairBlock {
  const std::uint32_t* a;  // [pairs, the half one too][R]
  const std::uint16_t* b;
  std::int64_t b_stride;  // weights of a panel
  std::int64_t pairs;     // whole ones
  bool half;              // one more input
  bool asks;              // memory has to be asked for weights
  bool first;             // out is written, else added to
  float* out;
  std::int64_t out_stride, columns;  // columns to write, at most 16 * P
  const float* bias;                 // added after this block; may be null
};

template <int R, int P, bool kAsks>
inline __attribute__((always_inline)) void sum_pairs(const PairBlock& block, V16 (&sum)[R][P]) {
  const std::uint32_t* a = block.a;
  const std::uint16_t* b = block.b;
  const std::int64_t stride = block.b_stride;
  const auto step = [&](const Pairs(&weights)[P]) __attribute__((always_inline)) {
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const Pairs x = broadcast_pair(a[r]);
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p) sum[r][p] = add_pairs(sum[r][p], x, weights[p]);
    }
    a += R;
  };
  Pairs weights[P];
  for (std::int64_t pair = 0; pair < block.pairs; ++pair, b += kPairWeights) {
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) {
      weights[p] = load_pairs(b + p * stride);
      if constexpr (kAsks) __builtin_prefetch(b + p * stride + kPairsAhead * kPairWeights, 0, 2);
    }
    step(weights);
  }
  if (!block.half) return;
#pragma GCC unroll 4
  for (int p = 0; p < P; ++p) weights[p] = load_singles(b + p * stride);
  step(weights);
}

template <int R, int P>
void pair_tile(const PairBlock& block) {
  V16 sum[R][P];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) sum[r][p] = zero();
  }
  if (block.asks) {
    sum_pairs<R, P, true>(block, sum);
  } else {
    sum_pairs<R, P, false>(block, sum);
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) {
      float* out = block.out + r * block.out_stride + p * kLanes;
      const std::int64_t columns = block.columns - p * kLanes;
      if (columns <= 0) continue;
      V16 total = sum[r][p];
      if (!block.first) total = add_sums(load_some(out, columns), total);
      if (block.bias != nullptr) {
        total = add_sums(total, load_some(block.bias + p * kLanes, columns));
      }
      store_some(out, total, columns);
    }
  }
}

#if defined(__AVX512F__)
constexpr int kPairRows = 12;
constexpr int pair_panels(int rows) { return rows <= 4 ? 4 : 2; }
#else
constexpr int kPairRows = 4;
constexpr int pair_panels(int rows) { return rows == 1 ? 2 : 1; }
#endif

struct PairTiles {
  void (*at[kPairRows + 1][5])(const PairBlock&);  // [rows][panels]
};
template <int R = 1, int P = 1>
constexpr void fill_pair_tiles(PairTiles& table) {
  table.at[R][P] = &pair_tile<R, P>;
  if constexpr (P < pair_panels(R)) {
    fill_pair_tiles<R, P + 1>(table);
  } else if constexpr (R < kPairRows) {
    fill_pair_tiles<R + 1, 1>(table);
  }
}
constexpr PairTiles make_pair_tiles() {
  PairTiles table{};
  fill_pair_tiles(table);
  return table;
}

// All rows against panels [panel, panel + panels): a block of weights meets every tile from cache.
inline void multiply_panels(const PairArgs& args, std::int64_t panel, int panels) {
  static constexpr PairTiles kTiles = make_pair_tiles();
  const std::int64_t tiles = pair_tiles(args.rows, kPairRows);
  PairBlock block{};
  block.b_stride = args.k * kLanes;
  block.out_stride = args.out_stride;
  block.columns = args.columns - panel * kLanes;
  const std::uint32_t* a = args.a;
  for (std::int64_t k = 0; k < args.k; k += kBlock) {
    const std::int64_t inputs = args.k - k < kBlock ? args.k - k : kBlock;
    block.b = args.b + panel * block.b_stride + k * kLanes;
    block.pairs = inputs / 2;
    block.half = inputs % 2 != 0;
    block.first = k == 0;
    block.bias =
        args.bias != nullptr && k + inputs == args.k ? args.bias + panel * kLanes : nullptr;
    for (std::int64_t tile = 0; tile < tiles; ++tile) {
      const std::int64_t row = args.rows * tile / tiles;
      const auto rows = static_cast<int>(args.rows * (tile + 1) / tiles - row);
      block.a = a;
      block.asks = tile == 0;
      block.out = args.out + row * args.out_stride + panel * kLanes;
      kTiles.at[rows][panels](block);
      a += rows * ((inputs + 1) / 2);
    }
  }
}

inline void multiply_pairs(const PairArgs& args) {
  const unsigned mode = begin_tiny_to_zero();
  const std::int64_t tiles = pair_tiles(args.rows, kPairRows);
  const int width = pair_panels(static_cast<int>((args.rows + tiles - 1) / tiles));
  for (std::int64_t panel = 0; panel < args.panels; panel += width) {
    const std::int64_t left = args.panels - panel;
    multiply_panels(args, panel, left < width ? static_cast<int>(left) : width);
  }
  end_tiny_to_zero(mode);
}

// A block of at most kBlock inputs to bf16, nearest even; NaN stays NaN, what is below 2^-126
// becomes a zero with its sign.
inline void round_pairs(const float* x, std::int64_t count, std::int64_t stride,
                        std::uint32_t* out) {
  std::uint32_t rounded[kBlock + 1];
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint32_t bits = bits_of(x[i]), size = bits & 0x7fffffffu;
    const std::uint32_t nearest = bits + 0x7fffu + (bits >> 16 & 1u);
    const std::uint32_t number = size > 0x7f800000u ? bits | 0x00400000u : nearest;
    rounded[i] = ((number & 0x7f800000u) == 0 ? number & 0x80000000u : number) >> 16;
  }
  if (count % 2 != 0) rounded[count] = 0;
  for (std::int64_t i = 0; i < count; i += 2) {
    out[i / 2 * stride] = rounded[i] | rounded[i + 1] << 16;
  }
}

constexpr PairKernels make_pair_table() { return {kPairRows, &multiply_pairs, &round_pairs}; }

}  // namespace
}  // namespace tessera::cpu
