#include "engine/core/block_types.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "engine/core/dtype.h"

namespace tessera {

namespace {

constexpr std::int64_t kSmall = 32;   // numbers of a plain block
constexpr std::int64_t kSuper = 256;  // numbers of a block of blocks, the K formats

unsigned byte_at(const std::byte* from, std::int64_t at) {
  return std::to_integer<unsigned>(from[at]);
}

float half_at(const std::byte* from) {
  std::uint16_t bits = 0;
  std::memcpy(&bits, from, sizeof bits);
  return f16_to_float(bits);
}

float signed_at(const std::byte* from, std::int64_t at) {
  return static_cast<float>(std::bit_cast<std::int8_t>(from[at]));
}

// Small integers are f32 without rounding.
float whole(unsigned value) { return static_cast<float>(value); }
float whole(int value) { return static_cast<float>(value); }

template <typename Number, float (*kWiden)(Number)>
void read_plain(const std::byte* from, std::int64_t blocks, float* out) {
  for (std::int64_t i = 0; i < blocks; ++i) {
    Number number;
    std::memcpy(&number, from + i * std::int64_t{sizeof number}, sizeof number);
    out[i] = kWiden(number);
  }
}
float same(float value) { return value; }
float narrowed(double value) { return static_cast<float>(value); }

// Four or five bits a number: 16 bytes hold numbers j and j + 16, `fifth` their highest bits.
template <typename Value>
void read_nibbles(const std::byte* from, unsigned fifth, float* out, Value value) {
  for (int j = 0; j < 16; ++j) {
    const unsigned both = byte_at(from, j);
    out[j] = value((both & 15u) | ((fifth >> j) & 1u) << 4);
    out[j + 16] = value((both >> 4) | ((fifth >> (j + 16)) & 1u) << 4);
  }
}

unsigned word_at(const std::byte* from) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, from, sizeof bits);
  return bits;
}

// d, [m,] [fifth bits,] nibbles. Without m: d * (q - middle); with it: d * q + m.
template <bool kFive, bool kOffset>
void read_small(const std::byte* from, std::int64_t blocks, float* out) {
  constexpr int kMiddle = kFive ? 16 : 8;
  for (std::int64_t b = 0; b < blocks; ++b, out += kSmall) {
    const float d = half_at(from);
    from += 2;
    float m = 0;
    if constexpr (kOffset) {
      m = half_at(from);
      from += 2;
    }
    unsigned fifth = 0;
    if constexpr (kFive) {
      fifth = word_at(from);
      from += 4;
    }
    read_nibbles(from, fifth, out, [&](unsigned q) {
      if constexpr (kOffset) return d * whole(q) + m;
      return d * whole(static_cast<int>(q) - kMiddle);
    });
    from += 16;
  }
}

void read_q8_0(const std::byte* from, std::int64_t blocks, float* out) {
  for (std::int64_t b = 0; b < blocks; ++b, from += 34, out += kSmall) {
    const float d = half_at(from);
    for (int j = 0; j < kSmall; ++j) out[j] = signed_at(from + 2, j) * d;
  }
}

void put_half(float value, std::byte* to) {
  const std::uint16_t bits = float_to_f16(value);
  std::memcpy(to, &bits, sizeof bits);
}

// The scale of a block as it is kept, and what its numbers are multiplied by: of the scale before
// it was rounded, as the reference writers have it.
struct Scale {
  float kept, inverse;
  float times(float number) const { return inverse == 0.0f ? 0.0f : number * inverse; }
};
Scale scale_of(float scale) {
  constexpr float kLargest = 65504.0f;
  if (std::isnan(scale)) return {scale, 0.0f};
  if (std::abs(scale) > kLargest) scale = std::copysign(kLargest, scale);
  return {scale, scale == 0.0f ? 0.0f : 1.0f / scale};
}

// The number of the largest size, the first of equals; NaN where not all are finite.
float largest(const float* from) {
  float found = from[0];
  bool finite = true;
  for (int j = 0; j < kSmall; ++j) {
    finite = finite && std::isfinite(from[j]);
    if (std::abs(from[j]) > std::abs(found)) found = from[j];
  }
  return finite ? found : std::numeric_limits<float>::quiet_NaN();
}

void write_q8_0(const float* from, std::int64_t blocks, std::byte* out) {
  for (std::int64_t b = 0; b < blocks; ++b, from += kSmall, out += 34) {
    const Scale scale = scale_of(std::abs(largest(from)) / 127.0f);
    put_half(scale.kept, out);
    for (int j = 0; j < kSmall; ++j) {
      const float q = scale.times(from[j]);
      out[2 + j] = std::bit_cast<std::byte>(
          static_cast<std::int8_t>(std::clamp(std::round(q), -127.0f, 127.0f)));
    }
  }
}

// The number of the largest size becomes -8.
void write_q4_0(const float* from, std::int64_t blocks, std::byte* out) {
  for (std::int64_t b = 0; b < blocks; ++b, from += kSmall, out += 18) {
    const Scale scale = scale_of(largest(from) / -8.0f);
    put_half(scale.kept, out);
    const auto nibble = [&](float number) {
      const double q = scale.inverse == 0.0f ? 8.0 : double{number} * double{scale.inverse} + 8.5;
      return static_cast<unsigned>(std::clamp(std::trunc(q), 0.0, 15.0));
    };
    for (int j = 0; j < 16; ++j) {
      out[2 + j] = static_cast<std::byte>(nibble(from[j]) | nibble(from[j + 16]) << 4);
    }
  }
}

// Number n of a super block: which of the bytes of two-bit fields holds it, and where in the byte.
// Halves of 128 numbers have 32 bytes each; a quarter of a half is one field of them.
struct TwoBits {
  std::int64_t byte;
  unsigned shift;
};
constexpr TwoBits two_bits(std::int64_t n) {
  return {n / 128 * 32 + n % 32, static_cast<unsigned>(n % 128 / 32 * 2)};
}

// scales[16] (scale | minimum << 4), two bits each, d, dmin.
void read_q2_k(const std::byte* from, std::int64_t blocks, float* out) {
  for (std::int64_t b = 0; b < blocks; ++b, from += 84, out += kSuper) {
    const std::byte* bits = from + 16;
    const float d = half_at(from + 80), dmin = half_at(from + 82);
    for (std::int64_t n = 0; n < kSuper; ++n) {
      const unsigned both = byte_at(from, n / 16);
      const auto [byte, shift] = two_bits(n);
      const unsigned q = byte_at(bits, byte) >> shift & 3u;
      out[n] = d * whole(both & 15u) * whole(q) - dmin * whole(both >> 4);
    }
  }
}

// Scale i of the sixteen of Q3_K: four bits and two more further on, less 32.
int q3_scale(const std::byte* scales, std::int64_t i) {
  const unsigned low = i < 8 ? byte_at(scales, i) & 15u : byte_at(scales, i - 8) >> 4;
  const unsigned high = byte_at(scales, 8 + i % 4) >> (i / 4 * 2) & 3u;
  return static_cast<int>(low | high << 4) - 32;
}

// third bits[32] (0 = four less), two bits each, scales[12], d.
void read_q3_k(const std::byte* from, std::int64_t blocks, float* out) {
  for (std::int64_t b = 0; b < blocks; ++b, from += 110, out += kSuper) {
    const std::byte* bits = from + 32;
    const std::byte* scales = from + 96;
    const float d = half_at(from + 108);
    for (std::int64_t n = 0; n < kSuper; ++n) {
      const auto [byte, shift] = two_bits(n);
      const bool third = (byte_at(from, n % 32) >> (n / 32) & 1u) != 0;
      const int q = static_cast<int>(byte_at(bits, byte) >> shift & 3u) - (third ? 0 : 4);
      out[n] = d * whole(q3_scale(scales, n / 16)) * whole(q);
    }
  }
}

struct ScaleAndMinimum {
  unsigned scale, minimum;
};
// Pair i of the eight of Q4_K and Q5_K: six bits each, the last four pairs in parts.
ScaleAndMinimum pair_of(const std::byte* scales, std::int64_t i) {
  if (i < 4) return {byte_at(scales, i) & 63u, byte_at(scales, i + 4) & 63u};
  return {(byte_at(scales, i + 4) & 15u) | (byte_at(scales, i - 4) >> 6) << 4,
          (byte_at(scales, i + 4) >> 4) | (byte_at(scales, i) >> 6) << 4};
}

// d, dmin, scales[12], [fifth bits[32],] four bits each: a group of 64 numbers has 32 bytes, the
// first half of it the low nibbles.
template <bool kFive>
void read_q45_k(const std::byte* from, std::int64_t blocks, float* out) {
  constexpr std::int64_t kBytes = kFive ? 176 : 144;
  for (std::int64_t b = 0; b < blocks; ++b, from += kBytes, out += kSuper) {
    const float d = half_at(from), dmin = half_at(from + 2);
    const std::byte* fifths = from + 16;
    const std::byte* nibbles = from + (kFive ? 48 : 16);
    for (std::int64_t group = 0; group < 8; ++group) {
      const auto [scale, minimum] = pair_of(from + 4, group);
      const float own = d * whole(scale), less = dmin * whole(minimum);
      for (std::int64_t j = 0; j < 32; ++j) {
        unsigned q = byte_at(nibbles, group / 2 * 32 + j) >> (group % 2 * 4) & 15u;
        if constexpr (kFive) q |= (byte_at(fifths, j) >> group & 1u) << 4;
        out[group * 32 + j] = own * whole(q) - less;
      }
    }
  }
}

// four bits[128], two more[64], scales[16] signed, d: six bits less 32.
void read_q6_k(const std::byte* from, std::int64_t blocks, float* out) {
  for (std::int64_t b = 0; b < blocks; ++b, from += 210, out += kSuper) {
    const float d = half_at(from + 208);
    for (std::int64_t n = 0; n < kSuper; ++n) {
      const std::int64_t half = n / 128, in = n % 128;
      const unsigned low = byte_at(from, half * 64 + in % 64) >> (in / 64 * 4) & 15u;
      const auto [byte, shift] = two_bits(n);
      const unsigned high = byte_at(from + 128, byte) >> shift & 3u;
      const float scale = d * signed_at(from + 192, n / 16);
      out[n] = scale * whole(static_cast<int>(low | high << 4) - 32);
    }
  }
}

constexpr BlockType kTypes[] = {
    {0, "F32", 1, 4, read_plain<float, same>, nullptr},
    {1, "F16", 1, 2, read_plain<std::uint16_t, f16_to_float>, nullptr},
    {2, "Q4_0", kSmall, 18, read_small<false, false>, write_q4_0},
    {3, "Q4_1", kSmall, 20, read_small<false, true>, nullptr},
    {6, "Q5_0", kSmall, 22, read_small<true, false>, nullptr},
    {7, "Q5_1", kSmall, 24, read_small<true, true>, nullptr},
    {8, "Q8_0", kSmall, 34, read_q8_0, write_q8_0},
    {10, "Q2_K", kSuper, 84, read_q2_k, nullptr},
    {11, "Q3_K", kSuper, 110, read_q3_k, nullptr},
    {12, "Q4_K", kSuper, 144, read_q45_k<false>, nullptr},
    {13, "Q5_K", kSuper, 176, read_q45_k<true>, nullptr},
    {14, "Q6_K", kSuper, 210, read_q6_k, nullptr},
    {28, "F64", 1, 8, read_plain<double, narrowed>, nullptr},
    {30, "BF16", 1, 2, read_plain<std::uint16_t, bf16_to_float>, nullptr},
};

struct NamedId {
  std::uint32_t id;
  std::string_view name;
};
constexpr NamedId kUnread[] = {
    {4, "Q4_2"},    {5, "Q4_3"},     {9, "Q8_1"},   {15, "Q8_K"},   {16, "IQ2_XXS"},
    {17, "IQ2_XS"}, {18, "IQ3_XXS"}, {19, "IQ1_S"}, {20, "IQ4_NL"}, {21, "IQ3_S"},
    {22, "IQ2_S"},  {23, "IQ4_XS"},  {24, "I8"},    {25, "I16"},    {26, "I32"},
    {27, "I64"},    {29, "IQ1_M"},   {34, "TQ1_0"}, {35, "TQ2_0"},  {39, "MXFP4"},
};

}  // namespace

std::span<const BlockType> block_types() { return kTypes; }

const BlockType* find_block_type(std::uint32_t id) {
  const auto* const found = std::find_if(std::begin(kTypes), std::end(kTypes),
                                         [&](const BlockType& type) { return type.id == id; });
  return found == std::end(kTypes) ? nullptr : found;
}

std::string_view unread_block_name(std::uint32_t id) {
  for (const NamedId& one : kUnread) {
    if (one.id == id) return one.name;
  }
  return "";
}

}  // namespace tessera
