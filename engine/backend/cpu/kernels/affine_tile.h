// The register tile of products with weights that have scales and offsets of groups (QuantForm). As
// in integer_tile.h, the sum of a group is one of integers, and groups are one chain of fused
// multiply-adds: a group's products first, then its offset times the sum of its inputs.
#pragma once

#include "engine/backend/cpu/kernels/affine_panel.h"
#include "engine/backend/cpu/kernels/integer_tile.h"

namespace tessera::cpu {
namespace {

template <QuantForm kForm>
struct Affine {};

// Bits 4 and 5 of the weights whose other ones are in `low`. `high`: of the block (AffinePanel).
#if defined(__AVX512VNNI__)

inline Quad with_bits(Quad low, const std::uint8_t* high, int left, int right, int mask) {
  const __m512i all = load_bytes(high);
  const __m512i own = left > 0 ? _mm512_slli_epi16(all, static_cast<unsigned>(left))
                               : _mm512_srli_epi16(all, static_cast<unsigned>(right));
  return {_mm512_or_si512(low.v, _mm512_and_si512(own, _mm512_set1_epi8(static_cast<char>(mask))))};
}
inline V16 load_factors(const std::int8_t* p) {
  return {_mm512_cvtepi32_ps(
      _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))))};
}

#elif defined(__AVX2__)

inline __m256i bits_at(const std::uint8_t* high, int left, int right, int mask) {
  const __m256i all = load_bytes(high);
  const __m256i own = left > 0 ? _mm256_slli_epi16(all, left) : _mm256_srli_epi16(all, right);
  return _mm256_and_si256(own, _mm256_set1_epi8(static_cast<char>(mask)));
}
inline Quad with_bits(Quad low, const std::uint8_t* high, int left, int right, int mask) {
  return {_mm256_or_si256(low.lo, bits_at(high, left, right, mask)),
          _mm256_or_si256(low.hi, bits_at(high + 32, left, right, mask))};
}
inline __m256 eight_factors(const std::int8_t* p) {
  return _mm256_cvtepi32_ps(
      _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}
inline V16 load_factors(const std::int8_t* p) { return {eight_factors(p), eight_factors(p + 8)}; }

#else

inline Quad with_bits(Quad low, const std::uint8_t* high, int left, int right, int mask) {
  return each_weight([&](int i) {
    return low.v[i / 4][i % 4] | ((static_cast<int>(high[i]) << left >> right) & mask);
  });
}
inline V16 load_factors(const std::int8_t* p) {
  return each_lane([&](int i) { return static_cast<float>(p[i]); });
}

#endif

// Four inputs of a block, without their sign: kForm.middle more than they are.
template <QuantForm kForm>
inline Quad load_affine(const std::uint8_t* nibbles, const std::uint8_t* high, int quad) {
  const Quad low = load_quad(FourBits{}, nibbles, quad);
  if constexpr (kForm.bits == 5) {
    return with_bits(low, high, quad < 4 ? 4 - quad : 0, quad < 4 ? 0 : quad - 4, 16);
  } else if constexpr (kForm.bits == 6) {
    const int field = quad % 4;
    return with_bits(low, high + 4 * kLanes * (quad / 4), field < 2 ? 4 - 2 * field : 0,
                     field < 2 ? 0 : 2 * field - 4, 48);
  } else {
    return low;
  }
}

// Scales or offsets of group `at` of a unit: f16 ones, times their factors where they have some.
template <QuantForm kForm>
inline V16 load_scales(const std::uint8_t* unit, int halves_at, int factors_at, int at) {
  const V16 whole = load_halves(unit + halves_at);
  if constexpr (!kForm.factors) return whole;
  return mul(whole,
             load_factors(reinterpret_cast<const std::int8_t*>(unit + factors_at + at * kLanes)));
}

// The sum of the inputs of group `group` of a block of a row.
template <QuantForm kForm>
inline std::int32_t group_sum(const std::int32_t* sums, const std::int32_t* half_sums, int row,
                              int group) {
  if constexpr (kForm.groups == 1) return sums[row];
  return group == 0 ? half_sums[row] : sums[row] - half_sums[row];
}

// One group of block `inner` of a unit; `a` and the rest stand at that block of the inputs.
template <int R, QuantForm kForm>
inline __attribute__((always_inline)) void add_group(const std::uint8_t* unit, int inner, int group,
                                                     const std::int8_t* a, const float* scale,
                                                     const std::int32_t* sums,
                                                     const std::int32_t* half_sums, V16 (&sum)[R]) {
  using Panel = AffinePanel<kForm>;
  constexpr int kGroupQuads = kQuads / kForm.groups;
  // Few rows have registers for two chains of sums of integers, which are exact in any order.
  constexpr int kChains = R <= 2 ? 2 : 1;
  I16 products[kChains * R];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
    std::int32_t first = 0;
    if constexpr (kForm.middle != 0) {
      first = -kForm.middle * group_sum<kForm>(sums, half_sums, r, group);
    }
    products[r] = broadcast_sum(first);
    if constexpr (kChains == 2) products[R + r] = broadcast_sum(0);
  }
#pragma GCC unroll 8
  for (int own = 0; own < kGroupQuads; ++own) {
    const int quad = group * kGroupQuads + own;
    const Quad weights = load_affine<kForm>(unit + inner * Panel::kNibbles,
                                            unit + Panel::kHighAt + inner * Panel::kHigh, quad);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      I16& sum_of = products[own % kChains * R + r];
      sum_of = add_products(FourBits{}, sum_of, weights, a + r * kQuantBlock + 4 * quad);
    }
  }
  if constexpr (kChains == 2) {
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) products[r] = add_sums(products[r], products[R + r]);
  }
  const int at = inner * kForm.groups + group;
  const V16 scales = load_scales<kForm>(unit, Panel::kScalesAt, Panel::kFactorsAt, at);
  V16 offsets = zero();
  if constexpr (kForm.offsets) {
    offsets = load_scales<kForm>(unit, Panel::kOffsetsAt, Panel::kOffsetFactorsAt, at);
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
    sum[r] = fma(to_floats(products[r]), mul(scales, broadcast(scale[r])), sum[r]);
    if constexpr (kForm.offsets) {
      const auto inputs = static_cast<float>(group_sum<kForm>(sums, half_sums, r, group));
      sum[r] = fma(broadcast(inputs * scale[r]), offsets, sum[r]);
    }
  }
}

template <int R, QuantForm kForm>
void affine_tile(const IntegerTileArgs& args) {
  using Panel = AffinePanel<kForm>;
  V16 sum[R];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) sum[r] = zero();
  const auto* b = static_cast<const std::uint8_t*>(args.b);
  const std::int8_t* a = args.a;
  const float* scale = args.scales;
  const std::int32_t* sums = args.sums;
  const std::int32_t* half_sums = args.half_sums;
  for (std::int64_t unit = 0; unit < args.blocks; unit += Panel::kBlocks, b += Panel::kBytes) {
    for (int inner = 0; inner < Panel::kBlocks; ++inner) {
      // Factors come after the quants of a unit: nothing asks for them before they are needed.
      if constexpr (R > kFewRows || kForm.factors) {
        for (int line = 0; line < Panel::kBytes / Panel::kBlocks; line += kLineBytes) {
          __builtin_prefetch(b + kAheadBytes + inner * (Panel::kBytes / Panel::kBlocks) + line, 0,
                             2);
        }
      }
#pragma GCC unroll 2
      for (int group = 0; group < kForm.groups; ++group) {
        add_group<R, kForm>(b, inner, group, a, scale, sums, half_sums, sum);
      }
      a += R * kQuantBlock;
      scale += R;
      sums += R;
      half_sums += R;
    }
  }
  write_sums(args, sum);
}

// A product with a scale is exact, and an offset is added with one rounding, as readers do.
template <QuantForm kForm>
void expand_affine(const void* panel, std::int64_t blocks, float* out) {
  using Panel = AffinePanel<kForm>;
  constexpr int kGroupQuads = kQuads / kForm.groups;
  const auto* unit = static_cast<const std::uint8_t*>(panel);
  const V16 middle = broadcast(float{kForm.middle});
  for (; blocks > 0; blocks -= Panel::kBlocks, unit += Panel::kBytes) {
    ask_ahead(unit, Panel::kBytes);
    for (int at = 0; at < Panel::kBlocks * kForm.groups; ++at) {
      const int inner = at / kForm.groups, first = at % kForm.groups * kGroupQuads;
      const V16 scales = load_scales<kForm>(unit, Panel::kScalesAt, Panel::kFactorsAt, at);
      V16 offsets = zero();
      if constexpr (kForm.offsets) {
        offsets = load_scales<kForm>(unit, Panel::kOffsetsAt, Panel::kOffsetFactorsAt, at);
      }
      for (int quad = first; quad < first + kGroupQuads; ++quad) {
        const Quad weights = load_affine<kForm>(unit + inner * Panel::kNibbles,
                                                unit + Panel::kHighAt + inner * Panel::kHigh, quad);
        for (int i = 0; i < 4; ++i, out += kLanes) {
          const V16 number = sub(quad_numbers(weights, i), middle);
          store(out, kForm.offsets ? fma(number, scales, offsets) : mul(number, scales));
        }
      }
    }
  }
}

template <QuantForm kForm>
struct TileOf<Affine<kForm>> {
  template <int R>
  static constexpr auto kAt = &affine_tile<R, kForm>;
};

template <QuantForm kForm>
constexpr IntegerTile affine_tile_of() {
  return {&run_integer_tile<Affine<kForm>>, 1, kForm.groups > 1, &expand_affine<kForm>};
}

constexpr IntegerKernels with_affine(IntegerKernels table) {
  table.tile_q4_1 = affine_tile_of<kQ4_1Form>();
  table.tile_q5_0 = affine_tile_of<kQ5_0Form>();
  table.tile_q5_1 = affine_tile_of<kQ5_1Form>();
  table.tile_q2_k = affine_tile_of<kQ2KForm>();
  table.tile_q3_k = affine_tile_of<kQ3KForm>();
  table.tile_q4_k = affine_tile_of<kQ4KForm>();
  table.tile_q5_k = affine_tile_of<kQ5KForm>();
  table.tile_q6_k = affine_tile_of<kQ6KForm>();
  return table;
}

}  // namespace
}  // namespace tessera::cpu
