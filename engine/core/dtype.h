// Element types and the conversions between them.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "engine/core/index.h"

namespace tessera {

enum class DType : std::uint8_t {
  kF32,
  kBF16,
  kF16,
  kF64,
  kI8,
  kU8,
  kI16,
  kI32,
  kI64,
  kBool,
  kQ8,  // Q8_0 of GGUF: blocks of 32 numbers, 8 bits each and a scale
  kQ4,  // Q4_0 of GGUF: 4 bits each
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ2K,  // Q2_K and so on of GGUF: blocks of 256 numbers
  kQ3K,
  kQ4K,
  kQ5K,
  kQ6K,
  kFile  // of no number: each tensor as its file has it
};

// What is kept together: a number, or a block of several with their scales.
struct DTypeBlock {
  std::int64_t numbers;
  std::size_t bytes;
};
constexpr DTypeBlock dtype_block(DType dtype) {
  switch (dtype) {
    case DType::kF64:
    case DType::kI64: return {1, 8};
    case DType::kF32:
    case DType::kI32: return {1, 4};
    case DType::kBF16:
    case DType::kF16:
    case DType::kI16: return {1, 2};
    case DType::kI8:
    case DType::kU8:
    case DType::kBool: return {1, 1};
    case DType::kQ8: return {32, 34};
    case DType::kQ4: return {32, 18};
    case DType::kQ4_1: return {32, 20};
    case DType::kQ5_0: return {32, 22};
    case DType::kQ5_1: return {32, 24};
    case DType::kQ2K: return {256, 84};
    case DType::kQ3K: return {256, 110};
    case DType::kQ4K: return {256, 144};
    case DType::kQ5K: return {256, 176};
    case DType::kQ6K: return {256, 210};
    case DType::kFile: break;
  }
  return {1, 0};
}

// Bytes of a number; 0 where numbers stand in blocks.
constexpr std::size_t dtype_size(DType dtype) {
  const DTypeBlock block = dtype_block(dtype);
  return block.numbers == 1 ? block.bytes : 0;
}

// Bytes of so many numbers; of whole blocks, the last one filled up.
constexpr std::size_t dtype_bytes(DType dtype, std::int64_t count) {
  const DTypeBlock block = dtype_block(dtype);
  return to_size((count + block.numbers - 1) / block.numbers) * block.bytes;
}

constexpr std::string_view dtype_name(DType dtype) {
  switch (dtype) {
    case DType::kF32: return "f32";
    case DType::kBF16: return "bf16";
    case DType::kF16: return "f16";
    case DType::kF64: return "f64";
    case DType::kI8: return "i8";
    case DType::kU8: return "u8";
    case DType::kI16: return "i16";
    case DType::kI32: return "i32";
    case DType::kI64: return "i64";
    case DType::kBool: return "bool";
    case DType::kQ8: return "q8";
    case DType::kQ4: return "q4";
    case DType::kQ4_1: return "q4_1";
    case DType::kQ5_0: return "q5_0";
    case DType::kQ5_1: return "q5_1";
    case DType::kQ2K: return "q2_k";
    case DType::kQ3K: return "q3_k";
    case DType::kQ4K: return "q4_k";
    case DType::kQ5K: return "q5_k";
    case DType::kQ6K: return "q6_k";
    case DType::kFile: return "file";
  }
  return "?";
}

constexpr float bf16_to_float(std::uint16_t bits) {
  return std::bit_cast<float>(std::uint32_t{bits} << 16);
}

// Round to nearest, ties to even; NaN stays NaN.
constexpr std::uint16_t float_to_bf16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return low_bits<std::uint16_t>((bits >> 16) | 0x40u);
  return low_bits<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

constexpr float f16_to_float(std::uint16_t half) {
  const std::uint32_t sign = (half & 0x8000u) << 16;
  const std::uint32_t exponent = (half >> 10) & 0x1fu;
  const std::uint32_t mantissa = half & 0x3ffu;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent != 0)
    return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  const float tiny = to_float(mantissa) * (1.0f / 16777216.0f);
  return sign != 0 ? -tiny : tiny;
}

// Round to nearest, ties to even; beyond the largest half infinity, NaN stays NaN.
constexpr std::uint16_t float_to_f16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u, size = bits & 0x7fffffffu;
  if (size > 0x7f800000u) return low_bits<std::uint16_t>(sign | 0x7e00u);
  if (size >= 0x47800000u) return low_bits<std::uint16_t>(sign | 0x7c00u);
  // Below the smallest normal half: units of 2^-24.
  std::uint32_t shift = 13, kept = size, bias = 112u << 23;
  if (size < 0x38800000u) {
    const std::uint32_t exponent = size >> 23;
    if (exponent < 102) return low_bits<std::uint16_t>(sign);
    shift = 126 - exponent;
    kept = (size & 0x7fffffu) | 0x800000u;
    bias = 0;
  }
  const std::uint32_t half = (kept - bias) >> shift, rest = (kept - bias) & ((1u << shift) - 1u);
  const std::uint32_t middle = 1u << (shift - 1);
  const std::uint32_t up = rest > middle || (rest == middle && (half & 1u) != 0) ? 1u : 0u;
  return low_bits<std::uint16_t>(sign | (half + up));
}

}  // namespace tessera
