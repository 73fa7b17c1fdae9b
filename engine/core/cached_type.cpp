#include "engine/core/cached_type.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>
#include <limits>

#include "engine/core/storage.h"

namespace tessera {

namespace {

template <DType kType>
void read_as(const void* from, std::int64_t count, float* out) {
  static const StorageType& type = storage_of(kType);
  type.read(from, 0, 1, count, out);
}

template <DType kType>
void write_as(const float* from, std::int64_t count, void* out) {
  static const StorageType& type = storage_of(kType);
  type.write(from, count, out);
}

constexpr float kMaxCached = 127.0f;

// The largest number's scale: a multiple of 2^8 units of its last place, not below `most` / 127.
// Below kLeast there is none.
float head_scale(float most) {
  constexpr float kLeast = 1e-30f;
  constexpr std::uint32_t kLow = 0xff;
  if (most < kLeast) return 0.0f;
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(most / kMaxCached);
  return std::bit_cast<float>((bits + kLow) & ~kLow);
}

void write_scaled(const float* from, std::int64_t count, void* out) {
  constexpr float kWhole = 12582912.0f;  // 1.5 * 2^23: what is added to it becomes whole
  std::uint32_t most_bits = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    most_bits = std::max(most_bits, std::bit_cast<std::uint32_t>(from[i]) & 0x7fffffffu);
  }
  const bool finite = most_bits < 0x7f800000u;
  const float scale = finite ? head_scale(std::bit_cast<float>(most_bits))
                             : std::numeric_limits<float>::quiet_NaN();
  const float inverse = finite && scale > 0.0f ? 1.0f / scale : 0.0f;
  auto* const numbers = static_cast<std::int8_t*>(out);
  for (std::int64_t i = 0; i < count; ++i) {
    const float rounded = (finite ? from[i] : 0.0f) * inverse + kWhole;
    const std::uint32_t whole =
        std::bit_cast<std::uint32_t>(rounded) - std::bit_cast<std::uint32_t>(kWhole);
    numbers[i] = std::bit_cast<std::int8_t>(low_bits<std::uint8_t>(whole));
  }
  std::memcpy(numbers + count, &scale, sizeof scale);
}

void read_scaled(const void* from, std::int64_t count, float* out) {
  const auto* const numbers = static_cast<const std::int8_t*>(from);
  float scale = 0;
  std::memcpy(&scale, numbers + count, sizeof scale);
  for (std::int64_t i = 0; i < count; ++i) out[i] = to_float(numbers[i]) * scale;
}

constexpr CachedType kCachedTypes[] = {
    {DType::kF32, DType::kF32, 0, read_as<DType::kF32>, write_as<DType::kF32>},
    {DType::kBF16, DType::kBF16, 0, read_as<DType::kBF16>, write_as<DType::kBF16>},
    {DType::kQ8, DType::kI8, sizeof(float), read_scaled, write_scaled},
};

const CachedType* row_or_null(const CachedType* at) { return at == std::end(kCachedTypes) ? nullptr : at; }

}  // namespace

std::span<const CachedType> cached_types() { return kCachedTypes; }

const CachedType& cached_type(DType type) {
  const CachedType* const row = row_or_null(std::ranges::find(kCachedTypes, type, &CachedType::type));
  expects(row != nullptr, "a cache is f32, bf16 or q8");
  return *row;
}

const CachedType* find_cached(DType element) {
  return row_or_null(std::ranges::find(kCachedTypes, element, &CachedType::element));
}

const CachedType& cached_type_of(const ConstTensorView& table) {
  const CachedType* const row = find_cached(table.dtype);
  expects(row != nullptr, "a table of a cache");
  return *row;
}

std::optional<DType> cached_named(std::string_view name) {
  for (const CachedType& row : kCachedTypes) {
    if (dtype_name(row.type) == name) return row.type;
  }
  return std::nullopt;
}

std::int64_t cached_head(const ConstTensorView& table) {
  return table.shape[2] - cached_type_of(table).extra;
}

void read_cached(const ConstTensorView& table, std::int64_t row, float* numbers) {
  const CachedType& type = cached_type_of(table);
  const std::int64_t head = cached_head(table), some = head * type.at_once(table.shape[1]);
  const auto* from = table.raw() + cached_row(table, row);
  for (std::int64_t at = 0; at < cached_width(table); at += some, from += type.bytes(some)) {
    type.read(from, some, numbers + at);
  }
}

void write_cached(const float* numbers, const TensorView& table, std::int64_t row) {
  const CachedType& type = cached_type_of(table);
  const std::int64_t head = cached_head(table), some = head * type.at_once(table.shape[1]);
  auto* to = table.raw() + cached_row(table, row);
  for (std::int64_t at = 0; at < cached_width(table); at += some, to += type.bytes(some)) {
    type.write(numbers + at, some, to);
  }
}

}  // namespace tessera
