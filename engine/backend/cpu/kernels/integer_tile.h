// The register tile of products with weights of blocks: R rows times P panels of 16 columns. Inputs
// were rounded to 8 bits in blocks of 32 like the weights. The sum of a block is one of integers,
// exact in any order; the blocks are one chain of fused multiply-adds. So R, P and the instruction
// set change speed, not results.
#pragma once

#include "engine/backend/cpu/kernels/kernels.h"
#include "engine/backend/cpu/kernels/simd.h"

namespace tessera::cpu {
namespace {

constexpr int kQuads = kQuantBlock / 4;           // inputs of a block go in fours
constexpr std::int64_t kScaleBytes = 2 * kLanes;  // f16, at the end of a panel's block
constexpr std::int64_t kAheadBlocks = 8;          // how far ahead of the sum weights are asked for

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
inline V16 to_floats(I16 x) {
  return each_lane([&](int i) { return static_cast<float>(x.v[i]); });
}
struct Quad {
  int v[kLanes][4];
};
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

// What a sum of products starts at so that kZero is out of it again.
#if defined(__AVX2__) && !defined(__AVX512VNNI__)
inline constexpr int first_sum(EightBits) { return 0; }  // add_signed takes it off
#else
inline constexpr int first_sum(EightBits) { return -EightBits::kZero; }
#endif
inline constexpr int first_sum(FourBits) { return -FourBits::kZero; }

template <int R, int P>
inline __attribute__((always_inline)) void write_sums(const IntegerTileArgs& args,
                                                      const V16 (&sum)[R][P]) {
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) {
      const std::int64_t columns = args.columns - p * kLanes;
      if (columns <= 0) continue;
      V16 total = sum[r][p];
      if (args.bias != nullptr) total = add(total, load_some(args.bias + p * kLanes, columns));
      store_some(args.out + r * args.out_stride + p * kLanes, total, columns);
    }
  }
}

template <int R, int P, typename W>
void integer_tile(const IntegerTileArgs& args) {
  V16 sum[R][P];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) sum[r][p] = zero();
  }
  const std::uint8_t* b = static_cast<const std::uint8_t*>(args.b);
  for (std::int64_t block = 0; block < args.blocks; ++block, b += W::kBytes) {
    I16 products[R][P];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const std::int32_t first = first_sum(W{}) * args.sums[r * args.block_stride + block];
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p) products[r][p] = broadcast_sum(first);
    }
#pragma GCC unroll 8
    for (int quad = 0; quad < kQuads; ++quad) {
      Quad weights[P];
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p) weights[p] = load_quad(W{}, b + p * args.b_stride, quad);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const std::int8_t* a = args.a + (r * args.block_stride + block) * kQuantBlock + 4 * quad;
#pragma GCC unroll 4
        for (int p = 0; p < P; ++p) {
          products[r][p] = add_products(W{}, products[r][p], weights[p], a);
        }
      }
    }
    V16 scales[P];
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) {
      scales[p] = load_halves(b + p * args.b_stride + W::kBytes - kScaleBytes);
      __builtin_prefetch(b + p * args.b_stride + kAheadBlocks * W::kBytes, 0, 2);
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const V16 scale = broadcast(args.scales[r * args.block_stride + block]);
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p) {
        sum[r][p] = fma(to_floats(products[r][p]), mul(scales[p], scale), sum[r][p]);
      }
    }
  }
  write_sums(args, sum);
}

#if defined(__AVX512F__)
constexpr int kIntegerRows = 6;
constexpr int integer_panels(int rows) { return rows <= 2 ? 4 : 2; }
#else
constexpr int kIntegerRows = 4;
constexpr int integer_panels(int rows) { return rows == 1 ? 2 : 1; }
#endif

// The function of a tile; weights of other kinds have their own (affine_tile.h).
template <typename W>
struct TileOf {
  template <int R, int P>
  static constexpr auto kAt = &integer_tile<R, P, W>;
};

template <typename W>
struct IntegerTiles {
  void (*at[kIntegerRows + 1][5])(const IntegerTileArgs&);  // [rows][panels]
};
template <typename W, int R = 1, int P = 1>
constexpr void fill_integer_tiles(IntegerTiles<W>& table) {
  table.at[R][P] = TileOf<W>::template kAt<R, P>;
  if constexpr (P < integer_panels(R)) {
    fill_integer_tiles<W, R, P + 1>(table);
  } else if constexpr (R < kIntegerRows) {
    fill_integer_tiles<W, R + 1, 1>(table);
  }
}
template <typename W>
constexpr IntegerTiles<W> make_integer_tiles() {
  IntegerTiles<W> table{};
  fill_integer_tiles<W>(table);
  return table;
}
template <typename W>
void run_integer_tile(const IntegerTileArgs& args, int rows, int panels) {
  static constexpr IntegerTiles<W> kTiles = make_integer_tiles<W>();
  kTiles.at[rows][panels](args);
}

// Rounds `blocks` blocks of inputs to 8 bits: the largest of a block becomes 127, the others the
// nearest, ties to even. Below kLeast all are zero. A block with NaN or infinity has a scale of
// NaN, and with it outputs of NaN.
inline void round_inputs(const float* x, std::int64_t blocks, std::int8_t* out, float* scales,
                         std::int32_t* sums) {
  constexpr float kLeast = 1e-30f;
  constexpr float kWhole = 12582912.0f;  // 1.5 * 2^23: what is added to it becomes whole
  for (std::int64_t block = 0; block < blocks; ++block, x += kQuantBlock, out += kQuantBlock) {
    std::uint32_t most_bits = 0;
    for (int i = 0; i < kQuantBlock; ++i) {
      const std::uint32_t size = bits_of(x[i]) & 0x7fffffffu;
      most_bits = size > most_bits ? size : most_bits;
    }
    const bool finite = most_bits < 0x7f800000u;
    const float most = float_of(most_bits);
    const float inverse = finite && most >= kLeast ? 127.0f / most : 0.0f;
    std::int32_t sum = 0;
    for (int i = 0; i < kQuantBlock; ++i) {
      const float number = finite ? x[i] : 0.0f;
      const float rounded = number * inverse + kWhole;
      const auto q = static_cast<std::int32_t>(bits_of(rounded) - bits_of(kWhole));
      out[i] = static_cast<std::int8_t>(q);
      sum += q;
    }
    scales[block] = !finite ? float_of(0x7fc00000u) : inverse == 0.0f ? 0.0f : most / 127.0f;
    sums[block] = sum;
  }
}

constexpr IntegerKernels make_integer_table() {
  IntegerKernels table{};
  table.tile_rows = kIntegerRows;
  for (int rows = 1; rows <= kIntegerRows; ++rows) table.tile_panels[rows] = integer_panels(rows);
  table.tile_q8 = &run_integer_tile<EightBits>;
  table.tile_q4 = &run_integer_tile<FourBits>;
  table.round_inputs = &round_inputs;
  return table;
}

}  // namespace
}  // namespace tessera::cpu
