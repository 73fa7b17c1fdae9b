#include "engine/core/block_parts.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "engine/core/dtype.h"

namespace tessera {

namespace {

constexpr std::int64_t kSuperNumbers = 256;  // numbers of a block of blocks, the K formats

unsigned byte_at(const std::byte* from, std::int64_t at) {
  return std::to_integer<unsigned>(from[at]);
}

std::uint8_t low_byte(unsigned value) { return static_cast<std::uint8_t>(value); }

std::uint16_t half_bits(const std::byte* from) {
  std::uint16_t bits = 0;
  std::memcpy(&bits, from, sizeof bits);
  return bits;
}

// What is subtracted in files is added here.
std::uint16_t negated(std::uint16_t half) { return static_cast<std::uint16_t>(half ^ 0x8000u); }

// scale, [offset,] [fifth bits,] nibbles: 16 bytes hold numbers j and j + 16.
template <bool kFive, bool kOffset>
void take_small(const std::byte* from, BlockParts& out) {
  out.scale = half_bits(from);
  from += 2;
  if constexpr (kOffset) {
    out.offset = half_bits(from);
    from += 2;
  }
  std::uint32_t fifth = 0;
  if constexpr (kFive) {
    std::memcpy(&fifth, from, sizeof fifth);
    from += 4;
  }
  for (unsigned j = 0; j < 16; ++j) {
    const unsigned both = byte_at(from, j);
    out.quants[j] = low_byte((both & 15u) | ((fifth >> j) & 1u) << 4);
    out.quants[j + 16] = low_byte((both >> 4) | ((fifth >> (j + 16)) & 1u) << 4);
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

// scales[16] (scale | minimum << 4), two bits each, scale, minimum.
void take_q2_k(const std::byte* from, BlockParts& out) {
  out.scale = half_bits(from + 80);
  out.offset = negated(half_bits(from + 82));
  for (std::int64_t n = 0; n < kSuperNumbers; ++n) {
    const auto [byte, shift] = two_bits(n);
    nth(out.quants, n) = low_byte(byte_at(from + 16, byte) >> shift & 3u);
  }
  for (std::int64_t i = 0; i < 16; ++i) {
    nth(out.scales, i) = static_cast<std::int8_t>(byte_at(from, i) & 15u);
    nth(out.offsets, i) = low_byte(byte_at(from, i) >> 4);
  }
}

// third bits[32], two bits each, scales[12] (four bits and two more further on, less 32), scale.
void take_q3_k(const std::byte* from, BlockParts& out) {
  out.scale = half_bits(from + 108);
  for (std::int64_t n = 0; n < kSuperNumbers; ++n) {
    const auto [byte, shift] = two_bits(n);
    const unsigned third = byte_at(from, n % 32) >> (n / 32) & 1u;
    nth(out.quants, n) = low_byte((byte_at(from + 32, byte) >> shift & 3u) | third << 2);
  }
  const std::byte* scales = from + 96;
  for (std::int64_t i = 0; i < 16; ++i) {
    const unsigned low = i < 8 ? byte_at(scales, i) & 15u : byte_at(scales, i - 8) >> 4;
    const unsigned high = byte_at(scales, 8 + i % 4) >> (i / 4 * 2) & 3u;
    nth(out.scales, i) = static_cast<std::int8_t>(static_cast<int>(low | high << 4) - 32);
  }
}

// scale, minimum, scales[12], [fifth bits[32],] four bits each: a group of 64 numbers has 32 bytes,
// the first half of it the low nibbles. Pairs of scale and minimum have six bits each, the last
// four pairs in parts.
template <bool kFive>
void take_q45_k(const std::byte* from, BlockParts& out) {
  out.scale = half_bits(from);
  out.offset = negated(half_bits(from + 2));
  const std::byte* scales = from + 4;
  const std::byte* fifths = from + 16;
  const std::byte* nibbles = from + (kFive ? 48 : 16);
  for (std::int64_t group = 0; group < 8; ++group) {
    const bool whole = group < 4;
    const unsigned scale =
        whole ? byte_at(scales, group) & 63u
              : (byte_at(scales, group + 4) & 15u) | (byte_at(scales, group - 4) >> 6) << 4;
    const unsigned minimum =
        whole ? byte_at(scales, group + 4) & 63u
              : (byte_at(scales, group + 4) >> 4) | (byte_at(scales, group) >> 6) << 4;
    nth(out.scales, group) = static_cast<std::int8_t>(scale);
    nth(out.offsets, group) = low_byte(minimum);
    for (std::int64_t j = 0; j < 32; ++j) {
      unsigned q = byte_at(nibbles, group / 2 * 32 + j) >> (group % 2 * 4) & 15u;
      if constexpr (kFive) q |= (byte_at(fifths, j) >> group & 1u) << 4;
      nth(out.quants, group * 32 + j) = low_byte(q);
    }
  }
}

// four bits[128], two more[64], scales[16] signed, scale.
void take_q6_k(const std::byte* from, BlockParts& out) {
  out.scale = half_bits(from + 208);
  for (std::int64_t n = 0; n < kSuperNumbers; ++n) {
    const std::int64_t half = n / 128, in = n % 128;
    const unsigned low = byte_at(from, half * 64 + in % 64) >> (in / 64 * 4) & 15u;
    const auto [byte, shift] = two_bits(n);
    nth(out.quants, n) = low_byte(low | (byte_at(from + 128, byte) >> shift & 3u) << 4);
  }
  std::memcpy(out.scales.data(), from + 192, out.scales.size());
}

constexpr BlockForm kForms[] = {
    {2, kQ4_0Form, take_small<false, false>}, {3, kQ4_1Form, take_small<false, true>},
    {6, kQ5_0Form, take_small<true, false>},  {7, kQ5_1Form, take_small<true, true>},
    {10, kQ2KForm, take_q2_k},                {11, kQ3KForm, take_q3_k},
    {12, kQ4KForm, take_q45_k<false>},        {13, kQ5KForm, take_q45_k<true>},
    {14, kQ6KForm, take_q6_k},
};

}  // namespace

const BlockForm* find_block_form(std::uint32_t id) {
  const auto* const found = std::find_if(std::begin(kForms), std::end(kForms),
                                         [&](const BlockForm& form) { return form.id == id; });
  return found == std::end(kForms) ? nullptr : found;
}

void read_block_form(const BlockForm& form, std::size_t bytes, const std::byte* from,
                     std::int64_t blocks, float* out) {
  const QuantForm& kind = form.form;
  const int group = 32 / kind.groups, groups = form.numbers() / group;
  BlockParts parts;
  for (std::int64_t b = 0; b < blocks; ++b, from += bytes) {
    form.take_apart(from, parts);
    const float whole_scale = f16_to_float(parts.scale), whole_offset = f16_to_float(parts.offset);
    const std::uint8_t* quants = parts.quants.data();
    for (int g = 0; g < groups; ++g, quants += group, out += group) {
      float scale = whole_scale, offset = whole_offset;
      if (kind.factors) {
        scale *= static_cast<float>(nth(parts.scales, g));
        if (kind.offsets) offset *= static_cast<float>(nth(parts.offsets, g));
      }
      for (int j = 0; j < group; ++j) {
        out[j] = scale * static_cast<float>(static_cast<int>(quants[j]) - kind.middle);
        if (kind.offsets) out[j] += offset;
      }
    }
  }
}

}  // namespace tessera
