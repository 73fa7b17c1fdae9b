// Blocks of GGUF files taken apart: where the bits of each format stand. Readers and what keeps
// such weights packed take them from here. Layouts: the ggml project's documentation of its
// formats.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "engine/core/index.h"
#include "engine/core/quant_form.h"

namespace tessera {

inline constexpr std::int64_t kSuperBlock = 256;  // numbers of a block of blocks, the K formats

struct BlockParts {
  std::array<std::uint8_t, 256> quants;  // of the numbers in order
  // Of groups in order, where the form has factors.
  std::array<std::int8_t, 16> scales;
  std::array<std::uint8_t, 16> offsets;
  // f16. A group's scale is `scale` times its factor; its offset likewise.
  std::uint16_t scale = 0, offset = 0;
};

struct BlockForm {
  std::uint32_t id;  // of the BlockType
  QuantForm form;
  void (*take_apart)(const std::byte* block, BlockParts& out);
  // Where the f16 scale stands, and the f16 offset, else the scale again.
  std::array<std::uint8_t, 2> halves;

  constexpr int numbers() const { return form.factors ? 256 : 32; }
};

// Offsets that files subtract are added here, and the other way round.
constexpr std::uint16_t negated_half(std::uint16_t half) {
  return low_bits<std::uint16_t>(half ^ 0x8000u);
}

// nullptr for formats of plain numbers and for Q8_0.
const BlockForm* find_block_form(std::uint32_t id);

// Whole blocks as f32. Products are exact and an offset is added with one rounding, as the format's
// reference reader does. bytes: of a block
void read_block_form(const BlockForm& form, std::size_t bytes, const std::byte* from,
                     std::int64_t blocks, float* out);

}  // namespace tessera
