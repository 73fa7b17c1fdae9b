#include "engine/core/block_types.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "engine/core/block_parts.h"
#include "engine/core/dtype.h"

namespace tessera {

namespace {

constexpr std::int64_t kSmall = 32;   // numbers of a plain block
constexpr std::int64_t kSuper = 256;  // numbers of a block of blocks, the K formats

float half_at(const std::byte* from) {
  std::uint16_t bits = 0;
  std::memcpy(&bits, from, sizeof bits);
  return f16_to_float(bits);
}

float signed_at(const std::byte* from, std::int64_t at) {
  return static_cast<float>(std::bit_cast<std::int8_t>(from[at]));
}

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

template <std::uint32_t kId, std::size_t kBytes>
void read_form(const std::byte* from, std::int64_t blocks, float* out) {
  static const BlockForm& form = *find_block_form(kId);
  read_block_form(form, kBytes, from, blocks, out);
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

constexpr BlockType kTypes[] = {
    {0, "F32", 1, 4, read_plain<float, same>, nullptr},
    {1, "F16", 1, 2, read_plain<std::uint16_t, f16_to_float>, nullptr},
    {2, "Q4_0", kSmall, 18, read_form<2, 18>, write_q4_0},
    {3, "Q4_1", kSmall, 20, read_form<3, 20>, nullptr},
    {6, "Q5_0", kSmall, 22, read_form<6, 22>, nullptr},
    {7, "Q5_1", kSmall, 24, read_form<7, 24>, nullptr},
    {8, "Q8_0", kSmall, 34, read_q8_0, write_q8_0},
    {10, "Q2_K", kSuper, 84, read_form<10, 84>, nullptr},
    {11, "Q3_K", kSuper, 110, read_form<11, 110>, nullptr},
    {12, "Q4_K", kSuper, 144, read_form<12, 144>, nullptr},
    {13, "Q5_K", kSuper, 176, read_form<13, 176>, nullptr},
    {14, "Q6_K", kSuper, 210, read_form<14, 210>, nullptr},
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
