#include "engine/core/storage.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "engine/core/block_types.h"
#include "engine/core/index.h"

namespace tessera {

namespace {

template <typename Bits, float (*kWiden)(Bits)>
void read_each(const void* from, std::int64_t first, std::int64_t step, std::int64_t count,
               float* out) {
  const Bits* numbers = static_cast<const Bits*>(from) + first;
  for (std::int64_t i = 0; i < count; ++i) out[i] = kWiden(numbers[i * step]);
}

// The nearest f32; the language leaves it open for what is beyond the largest one.
float double_to_float(double value) {
  constexpr double kMost = std::numeric_limits<float>::max(), kRoundsUp = 0x1.ffffffp127;
  const double size = std::abs(value);
  if (!(size > kMost)) return to_float(value);
  const float out =
      size < kRoundsUp ? std::numeric_limits<float>::max() : std::numeric_limits<float>::infinity();
  return std::signbit(value) ? -out : out;
}

void read_f32(const void* from, std::int64_t first, std::int64_t step, std::int64_t count,
              float* out) {
  const float* numbers = static_cast<const float*>(from) + first;
  if (step == 1 && count > 0) {
    std::memcpy(out, numbers, static_cast<std::size_t>(count) * sizeof(float));
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) out[i] = numbers[i * step];
}

void write_f32(const float* from, std::int64_t count, void* out) {
  if (count > 0) std::memcpy(out, from, static_cast<std::size_t>(count) * sizeof(float));
}

template <std::uint16_t (*kNarrow)(float)>
void write_each(const float* from, std::int64_t count, void* out) {
  auto* to = static_cast<std::uint16_t*>(out);
  for (std::int64_t i = 0; i < count; ++i) to[i] = kNarrow(from[i]);
}

constexpr std::size_t kMostNumbers = 256;  // of a block

template <std::uint32_t kId>
void read_blocks(const void* from, std::int64_t first, std::int64_t step, std::int64_t count,
                 float* out) {
  static const BlockType& type = *find_block_type(kId);
  std::array<float, kMostNumbers> numbers{};
  std::int64_t loaded = -1;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t at = first + i * step;
    if (at / type.numbers != loaded) {
      loaded = at / type.numbers;
      type.read(static_cast<const std::byte*>(from) + to_size(loaded) * type.bytes, 1,
                numbers.data());
    }
    out[i] = numbers[to_size(at % type.numbers)];
  }
}

template <std::uint32_t kId>
void write_blocks(const float* from, std::int64_t count, void* out) {
  static const BlockType& type = *find_block_type(kId);
  auto* to = static_cast<std::byte*>(out);
  for (std::int64_t i = 0; i < count; i += type.numbers, to += type.bytes) {
    std::array<float, kMostNumbers> numbers{};
    std::copy_n(from + i, std::min(type.numbers, count - i), numbers.data());
    type.write(numbers.data(), 1, to);
  }
}

constexpr StorageType of_numbers(DType dtype, bool kept, std::uint32_t gguf,
                                 decltype(StorageType::read) read,
                                 decltype(StorageType::write) write, DType beside) {
  return {dtype, kept, false, gguf, read, write, beside, kept ? dtype : beside};
}

template <std::uint32_t kId>
constexpr StorageType of_blocks(DType dtype, bool written, DType heads) {
  return {dtype,        true, true, kId, read_blocks<kId>, written ? write_blocks<kId> : nullptr,
          DType::kBF16, heads};
}

constexpr StorageType kStorageTypes[] = {
    of_numbers(DType::kF32, true, 0, read_f32, write_f32, DType::kF32),
    of_numbers(DType::kBF16, true, 30, read_each<std::uint16_t, bf16_to_float>,
               write_each<float_to_bf16>, DType::kBF16),
    of_numbers(DType::kF16, true, 1, read_each<std::uint16_t, f16_to_float>,
               write_each<float_to_f16>, DType::kF32),
    of_numbers(DType::kF64, false, 28, read_each<double, double_to_float>, nullptr, DType::kF32),
    of_blocks<8>(DType::kQ8, true, DType::kQ8),
    of_blocks<2>(DType::kQ4, true, DType::kQ8),
    of_blocks<3>(DType::kQ4_1, false, DType::kQ4_1),
    of_blocks<6>(DType::kQ5_0, false, DType::kQ5_0),
    of_blocks<7>(DType::kQ5_1, false, DType::kQ5_1),
    of_blocks<10>(DType::kQ2K, false, DType::kQ2K),
    of_blocks<11>(DType::kQ3K, false, DType::kQ3K),
    of_blocks<12>(DType::kQ4K, false, DType::kQ4K),
    of_blocks<13>(DType::kQ5K, false, DType::kQ5K),
    of_blocks<14>(DType::kQ6K, false, DType::kQ6K),
};

const StorageType* find(DType dtype) {
  const auto* const found =
      std::find_if(std::begin(kStorageTypes), std::end(kStorageTypes),
                   [&](const StorageType& type) { return type.dtype == dtype; });
  return found == std::end(kStorageTypes) ? nullptr : found;
}

}  // namespace

std::span<const StorageType> storage_types() { return kStorageTypes; }

const StorageType& storage_of(DType dtype) {
  const StorageType* const found = find(dtype);
  expects(found != nullptr, "weights are f32, f16, bf16 or f64");
  return *found;
}

bool is_weight(DType dtype) { return find(dtype) != nullptr; }

bool is_storage(DType dtype) {
  const StorageType* const found = find(dtype);
  return found != nullptr && found->kept;
}

const StorageType& kept_storage(DType dtype) {
  expects(is_storage(dtype), "weights are kept as f32, bf16, f16 or blocks");
  return storage_of(dtype);
}

std::optional<DType> storage_in_gguf(std::uint32_t number) {
  for (const StorageType& type : kStorageTypes) {
    if (type.gguf == number) return type.dtype;
  }
  return std::nullopt;
}

DType kept_as(DType own, DType storage) {
  if (storage != DType::kFile) return kept_storage(storage).dtype;
  return is_storage(own) ? own : DType::kF32;
}

DType beside(DType storage) {
  return storage == DType::kFile ? DType::kBF16 : kept_storage(storage).beside;
}

DType head_storage(DType storage) {
  return storage == DType::kFile ? storage : kept_storage(storage).heads;
}

std::optional<DType> storage_named(std::string_view name) {
  for (const StorageType& type : kStorageTypes) {
    if (type.write != nullptr && dtype_name(type.dtype) == name) return type.dtype;
  }
  return std::nullopt;
}

void read_numbers(const ConstTensorView& from, std::int64_t first, std::int64_t step,
                  std::int64_t count, float* out) {
  storage_of(from.dtype).read(from.data, first, step, count, out);
}

Tensor widened(const ConstTensorView& from) {
  Tensor wide = Tensor::host(DType::kF32, from.shape);
  read_numbers(from, 0, 1, from.shape.elements(), wide.f32());
  return wide;
}

}  // namespace tessera
