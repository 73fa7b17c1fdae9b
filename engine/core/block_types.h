// Number formats of GGUF files: rows of blocks, each with its own scales. What a block of each
// format holds, and how it is read as f32. Layouts: the ggml project's documentation of its
// formats.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace tessera {

struct BlockType {
  std::uint32_t id;       // in files
  std::string_view name;  // as files and tools spell it, "Q4_K"
  std::int64_t numbers;   // of a block
  std::size_t bytes;      // of a block
  // Reads whole blocks. Sums and products are single roundings to f32, one after the other, in the
  // order that the format's reference reader has. from: blocks * bytes; out: blocks * numbers
  void (*read)(const std::byte* from, std::int64_t blocks, float* out);
  // The same backwards, finite numbers: with the roundings of the format's reference writer, and
  // the K formats with a search for the least squared error; null where there is no writer. A scale
  // beyond the largest f16 is cut off there.
  void (*write)(const float* from, std::int64_t blocks, std::byte* out);
};

// Formats that can be read, sorted by id.
std::span<const BlockType> block_types();
// nullptr for one that is not known.
const BlockType* find_block_type(std::uint32_t id);
// The name of a format that files have and that cannot be read ("IQ2_XXS"); empty = nobody's.
std::string_view unread_block_name(std::uint32_t id);

}  // namespace tessera
