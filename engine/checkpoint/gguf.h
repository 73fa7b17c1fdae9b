// GGUF files (versions 2 and 3, little-endian): typed keys, then tensors of plain numbers or
// blocks. Layout: the ggml project's description of the format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/core/block_types.h"
#include "engine/core/tensor.h"

namespace tessera {

enum class GgufKind : std::uint8_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64
};
std::string_view gguf_kind_name(GgufKind kind);

class GgufArray;

// A value of a key, borrowed from the file. Every value was checked when the file was parsed.
class GgufValue {
 public:
  GgufValue() = default;
  // `body`: the bytes of the value; of an array, those of its elements.
  GgufValue(GgufKind kind, std::span<const std::byte> body) : kind_(kind), body_(body) {}
  GgufValue(GgufKind element, std::uint64_t count, std::span<const std::byte> body)
      : kind_(GgufKind::kArray), element_(element), count_(count), body_(body) {}

  GgufKind kind() const { return kind_; }
  // Nothing where the value is of another kind: integers of any width that fit, numbers of f32, f64
  // and integers.
  std::optional<std::int64_t> integer() const;
  std::optional<double> number() const;
  std::optional<bool> boolean() const;
  std::optional<std::string_view> text() const;  // UTF-8
  std::optional<GgufArray> array() const;
  // As the file has it; of a text without its length, of an array the elements.
  std::span<const std::byte> body() const { return body_; }

 private:
  friend class GgufArray;
  GgufKind kind_ = GgufKind::kU8, element_ = GgufKind::kU8;
  std::uint64_t count_ = 0;
  std::span<const std::byte> body_;
};

// Elements in order. Strings have lengths of their own, so an array is walked, not indexed.
class GgufArray {
 public:
  explicit GgufArray(const GgufValue& value)
      : element_(value.element_), left_(value.count_), body_(value.body_) {}
  GgufKind element() const { return element_; }
  std::uint64_t left() const { return left_; }
  // The next element; left() > 0.
  GgufValue next();

 private:
  GgufKind element_;
  std::uint64_t left_;
  std::span<const std::byte> body_;
};

struct GgufTensor {
  std::string name;
  const BlockType* type = nullptr;
  Shape shape;  // row-major: the last extent is the one whose numbers are neighbours
  std::uint64_t begin = 0, end = 0;  // bytes of the file

  std::int64_t numbers() const { return shape.elements(); }
};

struct GgufFile {
  std::uint32_t version = 3;
  std::map<std::string, GgufValue, std::less<>> keys;
  std::vector<GgufTensor> tensors;  // in the order of the file

  // nullptr when absent.
  const GgufValue* find(std::string_view key) const;
};

// True for a file that begins as GGUF files do.
bool looks_like_gguf(std::span<const std::byte> bytes);

// Reads and checks everything in front of the tensors of a whole file, in memory or mapped; the
// tensors' bytes are not touched, and nothing is allocated from declared sizes. Keys and values
// borrow `bytes`. `file` is the name in messages. Errors (kModel), with the key or tensor or byte:
// E_GGUF_SHORT, E_GGUF_MAGIC, E_GGUF_VERSION, E_GGUF_COUNT, E_GGUF_KEY, E_GGUF_VALUE, E_GGUF_TEXT,
// E_GGUF_DUPLICATE, E_GGUF_ALIGNMENT, E_GGUF_NAME, E_GGUF_RANK, E_GGUF_SHAPE, E_GGUF_TYPE,
// E_GGUF_BLOCKS, E_GGUF_OFFSET, E_GGUF_OVERLAP, E_GGUF_TRUNCATED.
GgufFile parse_gguf(std::span<const std::byte> bytes, const std::string& file);

// The numbers of a tensor as f32. bytes: of the whole file.
void read_gguf_tensor(const GgufTensor& tensor, std::span<const std::byte> bytes, float* out);

}  // namespace tessera
