#include "engine/core/block_parts.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "engine/core/dtype.h"
#include "engine/core/index.h"

namespace tessera {

namespace {

// Fields of neighbouring bytes are taken in loops of constant length over plain pointers, which
// compilers turn into vector code: whole files go through here while they are loaded.
const std::uint8_t* bytes_at(const std::byte* block, std::size_t at) {
  return reinterpret_cast<const std::uint8_t*>(block + at);
}

constexpr std::uint8_t low_byte(unsigned value) { return low_bits<std::uint8_t>(value); }

std::uint16_t half_bits(const std::byte* from) {
  std::uint16_t bits = 0;
  std::memcpy(&bits, from, sizeof bits);
  return bits;
}

// Bits `shift` on of each of N bytes, as many as `mask` has.
template <int N>
void put_bits(const std::uint8_t* from, unsigned shift, unsigned mask, std::uint8_t* to) {
  for (int j = 0; j < N; ++j) to[j] = low_byte(unsigned{from[j]} >> shift & mask);
}
// The same above the bits that are there.
template <int N>
void add_bits(const std::uint8_t* from, unsigned shift, unsigned mask, unsigned left,
              std::uint8_t* to) {
  for (int j = 0; j < N; ++j) to[j] |= low_byte((unsigned{from[j]} >> shift & mask) << left);
}

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
  std::uint8_t* const quants = out.quants.data();
  put_bits<16>(bytes_at(from, 0), 0, 15, quants);
  put_bits<16>(bytes_at(from, 0), 4, 15, quants + 16);
  if constexpr (kFive) {
    for (unsigned j = 0; j < 32; ++j) quants[j] |= low_byte((fifth >> j & 1u) << 4);
  }
}

// Two bits each of the numbers of a super block: halves of 128 numbers have 32 bytes each, a quarter
// of a half is one field of them.
void put_two_bits(const std::uint8_t* from, BlockParts& out) {
  std::uint8_t* to = out.quants.data();
  for (int half = 0; half < 2; ++half, from += 32) {
    for (unsigned shift = 0; shift < 8; shift += 2, to += 32) put_bits<32>(from, shift, 3, to);
  }
}

// scales[16] (scale | minimum << 4), two bits each, scale, minimum.
void take_q2_k(const std::byte* from, BlockParts& out) {
  out.scale = half_bits(from + 80);
  out.offset = negated_half(half_bits(from + 82));
  put_two_bits(bytes_at(from, 16), out);
  for (std::size_t i = 0; i < 16; ++i) {
    out.scales[i] = narrow<std::int8_t>(bytes_at(from, 0)[i] & 15);
  }
  put_bits<16>(bytes_at(from, 0), 4, 15, out.offsets.data());
}

// third bits[32], two bits each, scales[12] (four bits and two more further on, less 32), scale.
void take_q3_k(const std::byte* from, BlockParts& out) {
  out.scale = half_bits(from + 108);
  put_two_bits(bytes_at(from, 32), out);
  for (unsigned part = 0; part < 8; ++part) {
    add_bits<32>(bytes_at(from, 0), part, 1, 2, out.quants.data() + 32 * part);
  }
  const std::uint8_t* const scales = bytes_at(from, 96);
  for (unsigned i = 0; i < 16; ++i) {
    const unsigned low = i < 8 ? scales[i] & 15u : unsigned{scales[i - 8]} >> 4;
    const unsigned high = unsigned{scales[8 + i % 4]} >> (i / 4 * 2) & 3u;
    out.scales[i] = narrow<std::int8_t>(narrow<int>(low | high << 4) - 32);
  }
}

// scale, minimum, scales[12], [fifth bits[32],] four bits each: a group of 64 numbers has 32 bytes,
// the first half of it the low nibbles. Pairs of scale and minimum have six bits each, the last
// four pairs in parts.
template <bool kFive>
void take_q45_k(const std::byte* from, BlockParts& out) {
  out.scale = half_bits(from);
  out.offset = negated_half(half_bits(from + 2));
  const std::uint8_t* const scales = bytes_at(from, 4);
  for (unsigned group = 0; group < 8; ++group) {
    const bool whole = group < 4;
    const unsigned scale = whole ? scales[group] & 63u
                                 : (scales[group + 4] & 15u) | unsigned{scales[group - 4]} >> 6 << 4;
    const unsigned minimum = whole ? scales[group + 4] & 63u
                                   : unsigned{scales[group + 4]} >> 4 |
                                         unsigned{scales[group]} >> 6 << 4;
    out.scales[group] = narrow<std::int8_t>(scale);
    out.offsets[group] = low_byte(minimum);
  }
  const std::uint8_t* nibbles = bytes_at(from, kFive ? 48 : 16);
  std::uint8_t* to = out.quants.data();
  for (unsigned group = 0; group < 8; group += 2, nibbles += 32, to += 64) {
    put_bits<32>(nibbles, 0, 15, to);
    put_bits<32>(nibbles, 4, 15, to + 32);
    if constexpr (kFive) {
      add_bits<32>(bytes_at(from, 16), group, 1, 4, to);
      add_bits<32>(bytes_at(from, 16), group + 1, 1, 4, to + 32);
    }
  }
}

// four bits[128], two more[64], scales[16] signed, scale.
void take_q6_k(const std::byte* from, BlockParts& out) {
  out.scale = half_bits(from + 208);
  const std::uint8_t *low = bytes_at(from, 0), *high = bytes_at(from, 128);
  std::uint8_t* to = out.quants.data();
  for (int half = 0; half < 2; ++half, low += 64, high += 32, to += 128) {
    put_bits<64>(low, 0, 15, to);
    put_bits<64>(low, 4, 15, to + 64);
    for (unsigned part = 0; part < 4; ++part) add_bits<32>(high, 2 * part, 3, 4, to + 32 * part);
  }
  std::memcpy(out.scales.data(), from + 192, out.scales.size());
}

constexpr BlockForm kForms[] = {
    {2, kQ4_0Form, take_small<false, false>, {0, 0}},
    {3, kQ4_1Form, take_small<false, true>, {0, 2}},
    {6, kQ5_0Form, take_small<true, false>, {0, 0}},
    {7, kQ5_1Form, take_small<true, true>, {0, 2}},
    {10, kQ2KForm, take_q2_k, {80, 82}},
    {11, kQ3KForm, take_q3_k, {108, 108}},
    {12, kQ4KForm, take_q45_k<false>, {0, 2}},
    {13, kQ5KForm, take_q45_k<true>, {0, 2}},
    {14, kQ6KForm, take_q6_k, {208, 208}},
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
        scale *= to_float(nth(parts.scales, g));
        if (kind.offsets) offset *= to_float(nth(parts.offsets, g));
      }
      for (int j = 0; j < group; ++j) {
        out[j] = scale * to_float(int{quants[j]} - kind.middle);
      }
      for (int j = 0; kind.offsets && j < group; ++j) {
        out[j] += offset;
      }
    }
  }
}

}  // namespace tessera
