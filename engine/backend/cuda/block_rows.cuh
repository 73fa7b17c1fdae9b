// Rows of weights as kernels read them: four neighbouring numbers at a time, of every type that
// matrices and tables have in files. Numbers of blocks have the roundings of their reader
// (engine/core/block_parts.h): a product is exact, an offset is added with one rounding. Layouts:
// the ggml project's documentation of its formats. Device code.
#pragma once

#include <cstddef>

#include "engine/backend/cuda/simt.cuh"
#include "engine/core/dtype.h"
#include "engine/core/quant_form.h"

namespace tessera::cuda {

// A type of rows has Unit, what a row consists of; four(), the numbers k to k + 3 of a row, k a
// multiple of four; and early(), which fetches a line of them before they are read.
struct F32Rows {
  using Unit = float;
  static constexpr bool kUnpacks = false;
  __device__ static float4 four(const float* row, std::int64_t k) {
    const uint4 bits = load_once(row + k);
    return make_float4(__uint_as_float(bits.x), __uint_as_float(bits.y), __uint_as_float(bits.z),
                       __uint_as_float(bits.w));
  }
  __device__ static void early(const float* row, std::int64_t k) { fetch_early(row + k); }
};

struct F16Rows {
  using Unit = std::uint16_t;
  static constexpr bool kUnpacks = false;
  __device__ static float4 four(const std::uint16_t* row, std::int64_t k) {
    return make_float4(half_value(row[k]), half_value(row[k + 1]), half_value(row[k + 2]),
                       half_value(row[k + 3]));
  }
  __device__ static void early(const std::uint16_t* row, std::int64_t k) { fetch_early(row + k); }
};

// Blocks of so many numbers and bytes, which stand at even addresses.
template <int Numbers, int Bytes>
struct BlockRows {
  using Unit = std::byte;
  static constexpr bool kUnpacks = Numbers == 256;  // takes registers: see multiply_f32()

  __device__ static const std::uint16_t* block(const std::byte* row, std::int64_t k) {
    return reinterpret_cast<const std::uint16_t*>(row + k / Numbers * Bytes);
  }
  __device__ static void early(const std::byte* row, std::int64_t k) { fetch_early(block(row, k)); }
  __device__ static int in_block(std::int64_t k) { return static_cast<int>(k % Numbers); }
  // Bytes `at`, an even number, to at + 3 of a block; byte `at`, any, alone.
  __device__ static std::uint32_t bytes(const std::uint16_t* block, int at) {
    return block[at / 2] | static_cast<std::uint32_t>(block[at / 2 + 1]) << 16;
  }
  __device__ static std::uint32_t byte(const std::uint16_t* block, int at) {
    return static_cast<std::uint32_t>(block[at / 2]) >> (at % 2 * 8) & 255u;
  }
};

// Bits `bit` of four bytes that stand side by side, and four bits spread over as many bytes.
__device__ inline std::uint32_t bits_of(std::uint32_t bytes, int bit) {
  return bytes >> bit & 0x01010101u;
}
__device__ inline std::uint32_t spread(std::uint32_t bits) {
  return (bits & 15u) * 0x00204081u & 0x01010101u;
}

// scale (quant - middle) + offset, of four quants in the bytes of a word.
template <QuantForm kForm>
__device__ inline float4 four_numbers(std::uint32_t quants, float scale, float offset) {
  const auto number = [&](int i) {
    const int quant = static_cast<int>(quants >> (8 * i) & 255u);
    const float value = __fmul_rn(scale, static_cast<float>(quant - kForm.middle));
    return kForm.offsets ? __fadd_rn(value, offset) : value;
  };
  return make_float4(number(0), number(1), number(2), number(3));
}

// Q8_0: scale, a signed byte a number.
struct Q8Rows : BlockRows<32, 34> {
  __device__ static float4 four(const std::byte* row, std::int64_t k) {
    const std::uint16_t* const from = block(row, k);
    const float scale = half_value(from[0]);
    const std::uint32_t q = bytes(from, 2 + in_block(k));
    const auto number = [&](int i) {
      return scale * static_cast<float>(static_cast<std::int8_t>(q >> (8 * i)));
    };
    return make_float4(number(0), number(1), number(2), number(3));
  }
};

// Q4_0, Q4_1, Q5_0, Q5_1: scale, [offset,] [fifth bits,] 16 bytes: byte j has numbers j and j + 16.
template <QuantForm kForm>
inline constexpr int kSmallFifths = kForm.offsets ? 4 : 2;
template <QuantForm kForm>
inline constexpr int kSmallNibbles = kSmallFifths<kForm> + (kForm.bits == 5 ? 4 : 0);

template <QuantForm kForm>
struct SmallRows : BlockRows<32, kSmallNibbles<kForm> + 16> {
  using Base = BlockRows<32, kSmallNibbles<kForm> + 16>;
  __device__ static float4 four(const std::byte* row, std::int64_t k) {
    const std::uint16_t* const from = Base::block(row, k);
    const int at = Base::in_block(k);
    std::uint32_t quants = Base::bytes(from, kSmallNibbles<kForm> + at % 16);
    quants = quants >> (at / 16 * 4) & 0x0f0f0f0fu;
    if constexpr (kForm.bits == 5) {
      quants |= spread(Base::bytes(from, kSmallFifths<kForm>) >> at) << 4;
    }
    const float offset = kForm.offsets ? half_value(from[1]) : 0.0f;
    return four_numbers<kForm>(quants, half_value(from[0]), offset);
  }
};

// Two bits each of the numbers of a block of 256, the bytes of which begin at `begin`: halves of
// 128 have 32 bytes, a quarter of a half is one field of them.
template <typename Rows>
__device__ inline std::uint32_t two_bits(const std::uint16_t* block, int begin, int at) {
  const std::uint32_t bytes = Rows::bytes(block, begin + at / 128 * 32 + at % 32);
  return bytes >> (at % 128 / 32 * 2) & 0x03030303u;
}

// scales[16] (scale | minimum << 4), two bits each, scale, minimum.
struct Q2KRows : BlockRows<256, 84> {
  __device__ static float4 four(const std::byte* row, std::int64_t k) {
    const std::uint16_t* const from = block(row, k);
    const int at = in_block(k);
    const std::uint32_t both = byte(from, at / 16);
    return four_numbers<kQ2KForm>(
        two_bits<Q2KRows>(from, 16, at),
        __fmul_rn(half_value(from[40]), static_cast<float>(both & 15u)),
        __fmul_rn(-half_value(from[41]), static_cast<float>(both >> 4)));
  }
};

// third bits[32], two bits each, scales[12] (four bits and two more further on, less 32), scale.
struct Q3KRows : BlockRows<256, 110> {
  __device__ static float4 four(const std::byte* row, std::int64_t k) {
    const std::uint16_t* const from = block(row, k);
    const int at = in_block(k), group = at / 16;
    const std::uint32_t low = byte(from, 96 + group % 8) >> (group / 8 * 4) & 15u;
    const std::uint32_t high = byte(from, 104 + group % 4) >> (group / 4 * 2) & 3u;
    const int factor = static_cast<int>(low | high << 4) - 32;
    const std::uint32_t third = bits_of(bytes(from, at % 32), at / 32);
    return four_numbers<kQ3KForm>(two_bits<Q3KRows>(from, 32, at) | third << 2,
                                  __fmul_rn(half_value(from[54]), static_cast<float>(factor)), 0);
  }
};

// Q4_K, Q5_K: scale, minimum, scales[12], [fifth bits[32],] four bits each: 64 numbers have 32
// bytes, the first half of them the low nibbles. Pairs of scale and minimum have six bits each, the
// last four pairs in parts.
template <QuantForm kForm>
struct PairRows : BlockRows<256, kForm.bits == 5 ? 176 : 144> {
  using Base = BlockRows<256, kForm.bits == 5 ? 176 : 144>;
  static constexpr int kScales = 4, kFifths = 16, kNibbles = kForm.bits == 5 ? 48 : 16;

  __device__ static float4 four(const std::byte* row, std::int64_t k) {
    const std::uint16_t* const from = Base::block(row, k);
    const int at = Base::in_block(k), group = at / 32;
    std::uint32_t scale = Base::byte(from, kScales + group % 4);
    std::uint32_t minimum = Base::byte(from, kScales + 4 + group % 4);
    if (group < 4) {
      scale &= 63u;
      minimum &= 63u;
    } else {
      const std::uint32_t both = Base::byte(from, kScales + 4 + group);
      scale = (both & 15u) | scale >> 6 << 4;
      minimum = both >> 4 | minimum >> 6 << 4;
    }
    std::uint32_t quants = Base::bytes(from, kNibbles + group / 2 * 32 + at % 32);
    quants = quants >> (group % 2 * 4) & 0x0f0f0f0fu;
    if constexpr (kForm.bits == 5) {
      quants |= bits_of(Base::bytes(from, kFifths + at % 32), group) << 4;
    }
    return four_numbers<kForm>(
        quants, __fmul_rn(half_value(from[0]), static_cast<float>(scale)),
        __fmul_rn(-half_value(from[1]), static_cast<float>(minimum)));
  }
};

// four bits[128], two more[64], scales[16] signed, scale.
struct Q6KRows : BlockRows<256, 210> {
  __device__ static float4 four(const std::byte* row, std::int64_t k) {
    const std::uint16_t* const from = block(row, k);
    const int at = in_block(k);
    const std::uint32_t low = bytes(from, at / 128 * 64 + at % 64) >> (at % 128 / 64 * 4);
    const auto factor = static_cast<std::int8_t>(byte(from, 192 + at / 16));
    return four_numbers<kQ6KForm>((low & 0x0f0f0f0fu) | two_bits<Q6KRows>(from, 128, at) << 4,
                                  __fmul_rn(half_value(from[104]), static_cast<float>(factor)), 0);
  }
};

// function(Rows{}) with the rows of a type other than bf16, of which tensor cores take whole
// tiles; false for a type that has none.
template <typename Function>
bool with_rows(DType storage, Function&& function) {
  switch (storage) {
    case DType::kF32: function(F32Rows{}); return true;
    case DType::kF16: function(F16Rows{}); return true;
    case DType::kQ8: function(Q8Rows{}); return true;
    case DType::kQ4: function(SmallRows<kQ4_0Form>{}); return true;
    case DType::kQ4_1: function(SmallRows<kQ4_1Form>{}); return true;
    case DType::kQ5_0: function(SmallRows<kQ5_0Form>{}); return true;
    case DType::kQ5_1: function(SmallRows<kQ5_1Form>{}); return true;
    case DType::kQ2K: function(Q2KRows{}); return true;
    case DType::kQ3K: function(Q3KRows{}); return true;
    case DType::kQ4K: function(PairRows<kQ4KForm>{}); return true;
    case DType::kQ5K: function(PairRows<kQ5KForm>{}); return true;
    case DType::kQ6K: function(Q6KRows{}); return true;
    default: return false;
  }
}

}  // namespace tessera::cuda
