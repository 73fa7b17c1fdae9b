// The register tile of products with weights of blocks: R rows times one panel of 16 columns.
// Inputs were rounded to 8 bits in blocks of 32 like the weights. The sum of a block is one of
// integers, exact in any order; the blocks are one chain of fused multiply-adds. So R and the
// instruction set change speed, not results. One panel at a time is one stream from memory, which
// processors follow by themselves.
#pragma once

#include "engine/backend/cpu/kernels/kernels.h"
#include "engine/backend/cpu/kernels/simd.h"

namespace tessera::cpu {
namespace {

constexpr int kQuads = kQuantBlock / 4;           // inputs of a block go in fours
constexpr std::int64_t kScaleBytes = 2 * kLanes;  // f16, at the end of a panel's block
// Above kFewRows a block's arithmetic takes longer than its bytes. Then memory must be asked this
// far ahead, or it rests while the processor works: the next panel too.
constexpr std::int64_t kAheadBytes = 8192;
constexpr std::int64_t kLineBytes = 64;

// Weights of a block without their sign: `kZero` more than they are.
struct EightBits {
  static constexpr std::int64_t kBytes = kQuantBlock * kLanes + kScaleBytes;
  static constexpr int kZero = 128;
};
// The first two fours of a block share bytes with the last two, and so on: low and high nibbles.
struct FourBits {
  static constexpr std::int64_t kBytes = kQuantBlock / 2 * kLanes + kScaleBytes;
  static constexpr int kZero = 8;
};

#if defined(__AVX512VNNI__)

// 16 sums of integers.
struct I16 {
  __m512i v;
};
inline I16 broadcast_sum(std::int32_t x) { return {_mm512_set1_epi32(x)}; }
inline I16 add_sums(I16 a, I16 b) { return {_mm512_add_epi32(a.v, b.v)}; }
inline V16 to_floats(I16 x) { return {_mm512_cvtepi32_ps(x.v)}; }
// Four weights of each of 16 columns.
struct Quad {
  __m512i v;
};
inline __m512i load_bytes(const std::uint8_t* p) { return _mm512_loadu_si512(p); }
inline Quad load_quad(EightBits, const std::uint8_t* block, int quad) {
  return {load_bytes(block + 4 * kLanes * quad)};
}
inline Quad load_quad(FourBits, const std::uint8_t* block, int quad) {
  const __m512i both = load_bytes(block + 4 * kLanes * (quad % (kQuads / 2)));
  const __m512i own = quad < kQuads / 2 ? both : _mm512_srli_epi16(both, 4);
  return {_mm512_and_si512(own, _mm512_set1_epi8(15))};
}
// Weight `i` of the four.
inline V16 quad_numbers(Quad weights, int i) {
  const __m512i own = _mm512_srlv_epi32(weights.v, _mm512_set1_epi32(8 * i));
  return {_mm512_cvtepi32_ps(_mm512_and_si512(own, _mm512_set1_epi32(255)))};
}
template <typename W>
inline I16 add_products(W, I16 sum, Quad weights, const std::int8_t* inputs) {
  std::int32_t four;
  std::memcpy(&four, inputs, sizeof four);
  return {_mm512_dpbusd_epi32(sum.v, weights.v, _mm512_set1_epi32(four))};
}

#elif defined(__AVX2__)

struct I16 {
  __m256i lo, hi;
};
inline I16 broadcast_sum(std::int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
inline I16 add_sums(I16 a, I16 b) {
  return {_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)};
}
inline V16 to_floats(I16 x) { return {_mm256_cvtepi32_ps(x.lo), _mm256_cvtepi32_ps(x.hi)}; }
struct Quad {
  __m256i lo, hi;
};
inline __m256i load_bytes(const std::uint8_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
inline Quad load_quad(EightBits, const std::uint8_t* block, int quad) {
  return {load_bytes(block + 4 * kLanes * quad), load_bytes(block + 4 * kLanes * quad + 32)};
}
inline Quad load_quad(FourBits, const std::uint8_t* block, int quad) {
  const std::uint8_t* from = block + 4 * kLanes * (quad % (kQuads / 2));
  Quad both{load_bytes(from), load_bytes(from + 32)};
  if (quad >= kQuads / 2) {
    both = {_mm256_srli_epi16(both.lo, 4), _mm256_srli_epi16(both.hi, 4)};
  }
  const __m256i low = _mm256_set1_epi8(15);
  return {_mm256_and_si256(both.lo, low), _mm256_and_si256(both.hi, low)};
}
inline __m256 eight_numbers(__m256i weights, int i) {
  const __m256i own = _mm256_srli_epi32(weights, 8 * i);
  return _mm256_cvtepi32_ps(_mm256_and_si256(own, _mm256_set1_epi32(255)));
}
// Weight `i` of the four.
inline V16 quad_numbers(Quad weights, int i) {
  return {eight_numbers(weights.lo, i), eight_numbers(weights.hi, i)};
}
inline __m256i add_pairs(__m256i sum, __m256i pairs) {
  return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
// Two products of 8 unsigned bits each do not fit 16 bits: the sign goes to the inputs instead, and
// what kZero adds is taken off again.
inline __m256i add_signed(__m256i sum, __m256i weights, __m256i inputs) {
  const __m256i own = _mm256_xor_si256(weights, _mm256_set1_epi8(-128));
  return add_pairs(sum, _mm256_maddubs_epi16(_mm256_abs_epi8(own), _mm256_sign_epi8(inputs, own)));
}
inline I16 add_products(EightBits, I16 sum, Quad weights, const std::int8_t* inputs) {
  std::int32_t four;
  std::memcpy(&four, inputs, sizeof four);
  const __m256i x = _mm256_set1_epi32(four);
  return {add_signed(sum.lo, weights.lo, x), add_signed(sum.hi, weights.hi, x)};
}
inline I16 add_products(FourBits, I16 sum, Quad weights, const std::int8_t* inputs) {
  std::int32_t four;
  std::memcpy(&four, inputs, sizeof four);
  const __m256i x = _mm256_set1_epi32(four);
  return {add_pairs(sum.lo, _mm256_maddubs_epi16(weights.lo, x)),
          add_pairs(sum.hi, _mm256_maddubs_epi16(weights.hi, x))};
}

#else

struct I16 {
  std::int32_t v[kLanes];
};
inline I16 broadcast_sum(std::int32_t x) {
  I16 out;
  for (int i = 0; i < kLanes; ++i) out.v[i] = x;
  return out;
}
inline I16 add_sums(I16 a, const I16& b) {
  for (int i = 0; i < kLanes; ++i) a.v[i] += b.v[i];
  return a;
}
inline V16 to_floats(I16 x) {
  return each_lane([&](int i) { return static_cast<float>(x.v[i]); });
}
struct Quad {
  int v[kLanes][4];
};
// Weight `i` of the four.
inline V16 quad_numbers(const Quad& weights, int i) {
  return each_lane([&](int lane) { return static_cast<float>(weights.v[lane][i]); });
}
template <typename F>
inline Quad each_weight(F value) {
  Quad out;
  for (int i = 0; i < 4 * kLanes; ++i) out.v[i / 4][i % 4] = value(i);
  return out;
}
inline Quad load_quad(EightBits, const std::uint8_t* block, int quad) {
  return each_weight([&](int i) { return static_cast<int>(block[4 * kLanes * quad + i]); });
}
inline Quad load_quad(FourBits, const std::uint8_t* block, int quad) {
  const std::uint8_t* from = block + 4 * kLanes * (quad % (kQuads / 2));
  const int shift = quad < kQuads / 2 ? 0 : 4;
  return each_weight([&](int i) { return static_cast<int>(from[i]) >> shift & 15; });
}
template <typename W>
inline I16 add_products(W, I16 sum, Quad weights, const std::int8_t* inputs) {
  for (int c = 0; c < kLanes; ++c) {
    for (int i = 0; i < 4; ++i) sum.v[c] += weights.v[c][i] * inputs[i];
  }
  return sum;
}

#endif

// The factor of a block's sum that a sum of products starts at, so that kZero is out of it again.
#if defined(__AVX2__) && !defined(__AVX512VNNI__)
inline constexpr std::int32_t sum_factor(EightBits) { return 0; }  // add_signed takes it off
#else
inline constexpr std::int32_t sum_factor(EightBits) { return -EightBits::kZero; }
#endif
inline constexpr std::int32_t sum_factor(FourBits) { return -FourBits::kZero; }

template <int R>
inline __attribute__((always_inline)) void write_sums(const IntegerTileArgs& args,
                                                      const V16 (&sum)[R]) {
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
    V16 total = sum[r];
    if (args.bias != nullptr) total = add(total, load_some(args.bias, args.columns));
    store_some(args.out + r * args.out_stride, total, args.columns);
  }
}

template <int R, typename W>
void integer_tile(const IntegerTileArgs& args) {
  V16 sum[R];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) sum[r] = zero();
  const auto* b = static_cast<const std::uint8_t*>(args.b);
  const std::int8_t* a = args.a;
  const std::int32_t* first = args.sums;
  const float* scale = args.scales;
  for (std::int64_t left = args.blocks; left > 0; --left) {
    I16 products[R];
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) products[r] = broadcast_sum(first[r]);
#pragma GCC unroll 8
    for (int quad = 0; quad < kQuads; ++quad) {
      if constexpr (R > kFewRows) {
        if (kLineBytes * quad < W::kBytes) {
          __builtin_prefetch(b + kAheadBytes + kLineBytes * quad, 0, 2);
        }
      }
      const Quad weights = load_quad(W{}, b, quad);
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {
        products[r] = add_products(W{}, products[r], weights, a + r * kQuantBlock + 4 * quad);
      }
    }
    if constexpr (R > kFewRows && kLineBytes * kQuads < W::kBytes) {
      __builtin_prefetch(b + kAheadBytes + kLineBytes * kQuads, 0, 2);
    }
    const V16 weight_scales = load_halves(b + W::kBytes - kScaleBytes);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      sum[r] = fma(to_floats(products[r]), mul(weight_scales, broadcast(scale[r])), sum[r]);
    }
    b += W::kBytes;
    a += R * kQuantBlock;
    first += R;
    scale += R;
  }
  write_sums(args, sum);
}

// Asks memory for the next bytes of a panel of which `bytes` are read meanwhile.
inline void ask_ahead(const std::uint8_t* from, std::int64_t bytes) {
  for (std::int64_t at = 0; at < bytes; at += kLineBytes) {
    __builtin_prefetch(from + kAheadBytes + at, 0, 2);
  }
}

template <typename W>
void expand_plain(const void* panel, std::int64_t blocks, float* out) {
  const auto* b = static_cast<const std::uint8_t*>(panel);
  const V16 middle = broadcast(float{W::kZero});
  for (; blocks > 0; --blocks, b += W::kBytes) {
    ask_ahead(b, W::kBytes);
    const V16 scales = load_halves(b + W::kBytes - kScaleBytes);
    for (int quad = 0; quad < kQuads; ++quad) {
      const Quad weights = load_quad(W{}, b, quad);
      for (int i = 0; i < 4; ++i, out += kLanes) {
        store(out, mul(sub(quad_numbers(weights, i), middle), scales));
      }
    }
  }
}

#if defined(__AVX512F__)
constexpr int kIntegerRows = 12;
#elif defined(__AVX2__)
constexpr int kIntegerRows = 4;
#else
constexpr int kIntegerRows = 2;
#endif

// The function of a tile; weights of other kinds have their own (affine_tile.h).
template <typename W>
struct TileOf {
  template <int R>
  static constexpr auto kAt = &integer_tile<R, W>;
};

template <typename W>
struct IntegerTiles {
  void (*at[kIntegerRows + 1])(const IntegerTileArgs&);  // [rows]
};
template <typename W, int R = 1>
constexpr void fill_integer_tiles(IntegerTiles<W>& table) {
  table.at[R] = TileOf<W>::template kAt<R>;
  if constexpr (R < kIntegerRows) fill_integer_tiles<W, R + 1>(table);
}
template <typename W>
constexpr IntegerTiles<W> make_integer_tiles() {
  IntegerTiles<W> table{};
  fill_integer_tiles<W>(table);
  return table;
}
template <typename W>
void run_integer_tile(const IntegerTileArgs& args, int rows) {
  static constexpr IntegerTiles<W> kTiles = make_integer_tiles<W>();
  kTiles.at[rows](args);
}

// Rounds `blocks` blocks of inputs to 8 bits: the largest of a block becomes 127, the others the
// nearest, ties to even. Below kLeast all are zero. A block with NaN or infinity has a scale of
// NaN, and with it outputs of NaN.
inline void round_inputs(const float* x, std::int64_t blocks, const RoundedRow& row) {
  constexpr float kLeast = 1e-30f;
  constexpr float kWhole = 12582912.0f;  // 1.5 * 2^23: what is added to it becomes whole
  std::int8_t* out = row.numbers;
  const std::int64_t step = row.stride * kQuantBlock;
  for (std::int64_t block = 0; block < blocks; ++block, x += kQuantBlock, out += step) {
    std::uint32_t most_bits = 0;
    for (int i = 0; i < kQuantBlock; ++i) {
      const std::uint32_t size = bits_of(x[i]) & 0x7fffffffu;
      most_bits = size > most_bits ? size : most_bits;
    }
    const bool finite = most_bits < 0x7f800000u;
    const float most = float_of(most_bits);
    const float inverse = finite && most >= kLeast ? 127.0f / most : 0.0f;
    constexpr int kHalf = kQuantBlock / 2;
    std::int32_t sums[2] = {0, 0};
    for (int half = 0; half < 2; ++half) {
      for (int i = half * kHalf; i < (half + 1) * kHalf; ++i) {
        const float number = finite ? x[i] : 0.0f;
        const float rounded = number * inverse + kWhole;
        const auto q = static_cast<std::int32_t>(bits_of(rounded) - bits_of(kWhole));
        out[i] = static_cast<std::int8_t>(q);
        sums[half] += q;
      }
    }
    const float scale = inverse == 0.0f ? 0.0f : most / 127.0f;
    row.scales[block * row.stride] = finite ? scale : float_of(0x7fc00000u);
    row.sums[block * row.stride] = (sums[0] + sums[1]) * row.sum_factor;
    if (row.half_sums != nullptr) row.half_sums[block * row.stride] = sums[0] * row.sum_factor;
  }
}

constexpr IntegerKernels make_integer_table() {
  IntegerKernels table{};
  table.tile_rows = kIntegerRows;
  table.tile_q8 = {&run_integer_tile<EightBits>, sum_factor(EightBits{}), false,
                   &expand_plain<EightBits>};
  table.tile_q4 = {&run_integer_tile<FourBits>, sum_factor(FourBits{}), false,
                   &expand_plain<FourBits>};
  table.round_inputs = &round_inputs;
  return table;
}

}  // namespace
}  // namespace tessera::cpu
