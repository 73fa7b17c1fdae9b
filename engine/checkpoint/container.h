// What one weight file says it holds, after every check of its container and before any byte of a
// tensor is looked at. Byte ranges count from the first byte of the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/core/dtype.h"
#include "engine/core/tensor.h"

namespace tessera {

inline constexpr std::size_t kMaxTensors = 100'000;
inline constexpr std::size_t kMaxTensorName = 1024;  // bytes

struct StoredTensor {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  std::uint64_t begin = 0;  // of the first element
  std::uint64_t end = 0;    // one past the last byte that any element touches
  // Element strides; empty when the tensor lies dense and row-major, and then end - begin is its
  // size.
  std::vector<std::int64_t> strides;
};

struct Container {
  std::vector<StoredTensor> tensors;
  std::map<std::string, std::string> metadata;
};

// Whether a tensor may bear this name: 1..1024 bytes of UTF-8 without control characters.
bool is_tensor_name(std::string_view name);

// `tensor "name"`, cut to a length fit for a message.
std::string tensor_place(std::string_view name);

// Little-endian unsigned integer of `bytes` <= 8 bytes at `at`; the caller has checked the range.
std::uint64_t read_le(std::span<const std::byte> data, std::uint64_t at, int bytes);

}  // namespace tessera
