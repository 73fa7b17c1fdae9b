// Writes GGUF files, version 3: typed keys, then tensors one after the other, none of them held in
// memory. Layout: the ggml project's description of the format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/checkpoint/gguf.h"
#include "engine/core/kept_file.h"

namespace tessera {

// Keys with their values, in the order in which they were first set; setting one again replaces it.
class GgufKeys {
 public:
  void text(std::string_view key, std::string_view value);  // UTF-8
  void u32(std::string_view key, std::uint32_t value);
  void f32(std::string_view key, float value);
  void boolean(std::string_view key, bool value);
  void texts(std::string_view key, std::span<const std::string> values);
  void i32s(std::string_view key, std::span<const std::int32_t> values);
  void f32s(std::string_view key, std::span<const float> values);
  // A value of a file that was read, of whatever kind.
  void copy(std::string_view key, const GgufValue& value);
  void append(const GgufKeys& others);

  std::size_t size() const { return values_.size(); }
  std::string encoded() const;  // as files have them

 private:
  std::string& value_of(std::string_view key);
  std::vector<std::pair<std::string, std::string>> values_;  // encoded
};

// A tensor as it will stand in the file: 1 to 4 extents, rows of whole blocks.
struct GgufPlanned {
  std::string name;
  const BlockType* type = nullptr;
  Shape shape;  // row-major

  std::int64_t row() const { return shape[shape.rank() - 1]; }
  std::uint64_t bytes() const {
    return std::uint64_t(shape.elements() / type->numbers) * type->bytes;
  }
};
// Whether rows of so many numbers are whole blocks of the type, of at most as many extents as files
// have.
bool fits_gguf(const Shape& shape, const BlockType& type);

// Writes whole blocks of finite numbers; null for a format that has no writer.
using BlockWriter = void (*)(const float* from, std::int64_t blocks, std::byte* out);
BlockWriter block_writer(const BlockType& type);

class GgufWriter {
 public:
  // Writes all that precedes the tensors. `keys` have no general.alignment: tensors begin at
  // multiples of 32 bytes. With a `source` a part of it that another run kept is gone on with
  // (kept_file.h), if it has the same keys and tensors. Error kStorage as KeptFile's.
  GgufWriter(const std::filesystem::path& path, const GgufKeys& keys,
             std::vector<GgufPlanned> tensors, std::string source = {});

  std::uint64_t bytes() const { return bytes_; }  // of the whole file
  // Whole tensors in the file. After opening: those of the earlier run, and what it noted of them.
  std::size_t done() const { return current_; }
  const std::string& note() const { return file_.note(); }
  // The next bytes of the tensors, in their order. No piece holds bytes of two of them.
  void append(std::span<const std::byte> data);
  // Between two tensors: KeptFile's.
  void mark(std::string_view note);
  void keep() { file_.keep(); }
  void publish();  // after all bytes of all tensors

 private:
  GgufWriter(const std::filesystem::path& path, std::string_view front,
             std::vector<GgufPlanned>&& tensors, std::string source);
  bool take_up(std::string_view front);

  std::vector<GgufPlanned> tensors_;
  std::uint64_t bytes_;
  KeptFile file_;
  std::size_t current_ = 0;
  std::uint64_t written_ = 0;  // of the current tensor
};

}  // namespace tessera
