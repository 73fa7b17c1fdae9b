// A value is not finite when all exponent bits are set; of f64, when it is none as f32. The count
// runs over blocks of fixed length without branches, which compilers turn into vector code; only
// blocks that count are looked at again for the first index.
#include "engine/checkpoint/non_finite.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "engine/core/block_parts.h"
#include "engine/core/index.h"
#include "engine/core/storage.h"

namespace tessera {

namespace {

constexpr std::int64_t kBlock = 4096;

template <typename Bits>
std::int64_t count_block(const Bits* values, Bits mask) {
  Bits count = 0;
  for (std::int64_t i = 0; i < kBlock; ++i) {
    count = static_cast<Bits>(count + ((values[i] & mask) == mask ? 1 : 0));
  }
  return to_index(count);
}

template <typename Bits>
std::optional<NonFinite> search(const Bits* values, std::int64_t size, Bits mask) {
  NonFinite out;
  for (std::int64_t begin = 0; begin < size; begin += kBlock) {
    const std::int64_t length = std::min(kBlock, size - begin);
    const Bits* block = values + begin;
    const auto is_bad = [mask](Bits bits) { return (bits & mask) == mask; };
    const std::int64_t count =
        length == kBlock ? count_block(block, mask) : std::count_if(block, block + length, is_bad);
    if (count > 0 && out.count == 0) {
      out.index = begin + (std::find_if(block, block + length, is_bad) - block);
    }
    out.count += count;
  }
  return out.count > 0 ? std::optional(out) : std::nullopt;
}

constexpr double kNoF32 = 0x1.ffffffp127;  // and more is infinite as f32

std::optional<NonFinite> search_f64(const double* values, std::int64_t size) {
  NonFinite out;
  for (std::int64_t i = 0; i < size; ++i) {
    if (std::abs(values[i]) < kNoF32) continue;
    if (out.count++ == 0) out.index = i;
  }
  return out.count > 0 ? std::optional(out) : std::nullopt;
}

bool is_finite_half(const std::byte* at) {
  std::uint16_t bits = 0;
  std::memcpy(&bits, at, sizeof bits);
  return (bits & 0x7c00u) != 0x7c00u;
}

// Numbers in blocks are finite where their scales are; which of them are not, their f32 says.
std::optional<NonFinite> search_blocks(const ConstTensorView& view, std::int64_t size) {
  const auto [length, bytes] = dtype_block(view.dtype);
  const BlockForm* const form = find_block_form(storage_of(view.dtype).gguf);
  const auto halves = form == nullptr ? decltype(form->halves){} : form->halves;
  const std::byte* block = view.raw();
  NonFinite out;
  std::vector<float> numbers(to_size(length));
  for (std::int64_t begin = 0; begin < size; begin += length, block += bytes) {
    if (is_finite_half(block + halves[0]) && is_finite_half(block + halves[1])) continue;
    const std::int64_t some = std::min(length, size - begin);
    read_numbers(view, begin, 1, some, numbers.data());
    const auto found = search<std::uint32_t>(reinterpret_cast<const std::uint32_t*>(numbers.data()),
                                             some, 0x7f800000u);
    if (!found) continue;
    if (out.count == 0) out.index = begin + found->index;
    out.count += found->count;
  }
  return out.count > 0 ? std::optional(out) : std::nullopt;
}

}  // namespace

std::optional<NonFinite> find_non_finite(const ConstTensorView& view) {
  expects(view.device == Device{}, "the tensor lies in host memory");
  const std::int64_t size = view.shape.elements();
  switch (view.dtype) {
    case DType::kF32:
      return search<std::uint32_t>(view.as<std::uint32_t>(), size, 0x7f800000u);
    case DType::kF64:
      return search_f64(view.as<double>(), size);
    case DType::kBF16:
      return search<std::uint16_t>(view.as<std::uint16_t>(), size, 0x7f80u);
    case DType::kF16:
      return search<std::uint16_t>(view.as<std::uint16_t>(), size, 0x7c00u);
    default:
      return dtype_block(view.dtype).numbers > 1 ? search_blocks(view, size) : std::nullopt;
  }
}

}  // namespace tessera
