// How numbers of weights, tables and caches are kept: one row a type. What computes with them asks
// the row, or has a row of its own for each type; it does not ask which type it is.
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

struct StorageType {
  DType dtype;
  // Weights can be kept so. The other types are read from files alone.
  bool kept;
  // Products with it are sums of integers, scaled once a block; else of floats, which a vendor's
  // library may take.
  bool integers;
  // Its number in GGUF files.
  std::uint32_t gguf;
  // Numbers first, first + step, ... of a row at `from`; steps over 1 where a block is one number.
  void (*read)(const void* from, std::int64_t first, std::int64_t step, std::int64_t count,
               float* out);
  // A row, or whole blocks of one. A last block that is not full is filled up with zeros. Null for
  // types that only files make.
  void (*write)(const float* from, std::int64_t count, void* out);
  // What stands beside such weights, one number at a time: tables, caches, kernels of convolutions.
  DType beside;
  // What layers with an output a token or code are kept as next to such weights: their errors reach
  // distributions undamped.
  DType heads;
  // A row of numbers is kept in whole blocks.
  std::int64_t block = dtype_block(dtype).numbers;
  std::size_t block_bytes = dtype_block(dtype).bytes;  // with their scales

  constexpr std::int64_t blocks(std::int64_t count) const { return (count + block - 1) / block; }
  constexpr std::size_t bytes(std::int64_t count) const {
    return static_cast<std::size_t>(blocks(count)) * block_bytes;
  }
  constexpr std::size_t bytes(std::int64_t n, std::int64_t k) const {
    return static_cast<std::size_t>(n) * bytes(k);
  }
};

std::span<const StorageType> storage_types();
// A type that the table does not have is a programmer's error: files were checked before.
const StorageType& storage_of(DType dtype);
// Those that weights of a file may have: all of the table. kWeightTypes names them.
bool is_weight(DType dtype);
inline constexpr const char* kWeightTypes = "f32, f16, bf16 or f64";
// Those that weights can be kept as.
bool is_storage(DType dtype);
const StorageType& kept_storage(DType dtype);
// The type with that number in GGUF files; nothing for numbers that no weight has.
std::optional<DType> storage_in_gguf(std::uint32_t number);
// The type that a tensor of a file is kept as in a model of `storage`: that, but with kFile its own
// one; f32 for one that is never kept.
DType kept_as(DType own, DType storage);
// The type of tables, caches and convolutions in a model whose matrices are kept as `storage`.
DType beside(DType storage);
// The type of its output layers.
DType head_storage(DType storage);
// The type of that name ("q8") that any weights can be kept as; nothing for others. kKeptNames lists
// them.
std::optional<DType> storage_named(std::string_view name);
inline constexpr std::array<std::string_view, 5> kKeptNames = {"f32", "bf16", "f16", "q8", "q4"};
inline constexpr const char* kKeptText = "f32, bf16, f16, q8 or q4";

// Numbers first, first + step, ... of a host tensor of any type of the table, as f32.
void read_numbers(const ConstTensorView& from, std::int64_t first, std::int64_t step,
                  std::int64_t count, float* out);
// A host tensor as f32.
Tensor widened(const ConstTensorView& from);

}  // namespace tessera
