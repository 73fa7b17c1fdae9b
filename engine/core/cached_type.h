// How keys and values of a cache are kept: one row a type. A table of a cache is
// [rows, heads, stored], where a head of n numbers takes n + extra elements. What computes with
// tables asks the row; it does not ask which type it is.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "engine/core/dtype.h"
#include "engine/core/tensor.h"

namespace tessera {

struct CachedType {
  DType type;          // as it is chosen: f32, bf16 or q8
  DType element;       // of a table in memory
  std::int64_t extra;  // elements of a head after its numbers
  // A head of `count` numbers; where there is nothing extra, any neighbours of a row.
  void (*read)(const void* from, std::int64_t count, float* out);
  void (*write)(const float* from, std::int64_t count, void* out);

  std::int64_t stored(std::int64_t numbers) const { return numbers + extra; }
  std::size_t bytes(std::int64_t numbers) const {
    return to_size(stored(numbers)) * dtype_size(element);
  }
  // What is written at once of a row of `heads` heads: all of it, or a head.
  std::int64_t at_once(std::int64_t heads) const { return extra == 0 ? heads : 1; }
};

// q8: the numbers of a head are integers of -127 to 127 times one f32 scale, which stands after
// them. The largest one is 127, the others are the nearest. Scales have 16 bits, rounded up, so
// products are exact, and what was read back and is kept again does not change. With NaN or
// infinity in a head all of it is NaN.
std::span<const CachedType> cached_types();
// The row of a choice; a type that caches do not have is a programmer's error.
const CachedType& cached_type(DType type);
// The row of a table with these elements; null = none.
const CachedType* find_cached(DType element);
const CachedType& cached_type_of(const ConstTensorView& table);
// The choice of that name ("q8"); nothing for others.
std::optional<DType> cached_named(std::string_view name);

// Of a table: numbers of a head, numbers of a row.
std::int64_t cached_head(const ConstTensorView& table);
inline std::int64_t cached_width(const ConstTensorView& table) {
  return table.shape[1] * cached_head(table);
}
// Where a row begins.
inline std::size_t cached_row(const ConstTensorView& table, std::int64_t row) {
  return to_size(row * table.shape[1] * table.shape[2]) * dtype_size(table.dtype);
}
// A row of a table in the host's memory as f32, and back. numbers: cached_width() of them.
void read_cached(const ConstTensorView& table, std::int64_t row, float* numbers);
void write_cached(const float* numbers, const TensorView& table, std::int64_t row);

}  // namespace tessera
