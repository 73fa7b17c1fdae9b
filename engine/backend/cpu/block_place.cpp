#include "engine/backend/cpu/block_place.h"

#include <cstring>

#include "engine/backend/cpu/kernels/affine_panel.h"
#include "engine/core/block_parts.h"
#include "engine/core/dtype.h"

namespace tessera::cpu {

namespace {

// Bytes of inputs 4 quad to 4 quad + 3 of a column: see panel_quad().
void put_quad(std::uint32_t four, std::int64_t quad, int column, std::byte* block) {
  std::memcpy(block + (quad * kLanes + column) * 4, &four, 4);
}

// A scale and numbers, taken apart: numbers of a column stand 16 columns apart in fours, the scales
// of all columns at the end of a block. Nibbles keep their place: low ones are inputs 0..15 of the
// block and high ones 16..31, in the file and here.
template <DType kType, unsigned kFlipped>
void place_plain(std::span<const std::byte> blocks, std::int64_t first, int column, void* panel) {
  constexpr std::size_t kBytes = dtype_block(kType).bytes, kNumbers = kBytes - 2;
  auto* out = static_cast<std::byte*>(panel) + to_size(first / kQuantBlock) * kBytes * kLanes;
  for (std::size_t at = 0; at < blocks.size(); at += kBytes, out += kBytes * kLanes) {
    const std::byte* block = blocks.data() + at;
    for (std::size_t i = 0; i < kNumbers; i += 4) {
      std::uint32_t four = 0;
      std::memcpy(&four, block + 2 + i, 4);
      put_quad(four ^ kFlipped * 0x01010101u, to_index(i / 4), column, out);
    }
    std::memcpy(out + kNumbers * kLanes + 2 * to_size(column), block, 2);
  }
}

// Quants of 32 inputs: nibbles, and the bits beyond four.
template <QuantForm kForm>
void place_quants(const std::uint8_t* quants, int inner, int column, std::byte* unit) {
  using Panel = AffinePanel<kForm>;
  constexpr int kQuads = kQuantBlock / 4;
  std::uint32_t fours[kQuads];  // four quants each
  std::memcpy(fours, quants, sizeof fours);
  std::byte* const nibbles = unit + inner * Panel::kNibbles;
  for (int i = 0; i < kQuads / 2; ++i) {
    const std::uint32_t low = fours[i] & 0x0f0f0f0fu, high = fours[i + kQuads / 2] & 0x0f0f0f0fu;
    put_quad(low | high << 4, i, column, nibbles);
  }
  if constexpr (Panel::kHighBits > 0) {
    // Bytes of one column: [plane][4], each with the bits of a few fours.
    constexpr int kFields = 8 / Panel::kHighBits;
    constexpr std::uint32_t kMask = ((1u << Panel::kHighBits) - 1) * 0x01010101u;
    std::byte* const planes = unit + Panel::kHighAt + inner * Panel::kHigh;
    for (int plane = 0; plane < kQuads / kFields; ++plane) {
      std::uint32_t bits = 0;
      for (int field = 0; field < kFields; ++field) {
        bits |= (fours[plane * kFields + field] >> 4 & kMask) << (field * Panel::kHighBits);
      }
      put_quad(bits, plane, column, planes);
    }
  }
}

template <std::uint32_t kId, DType kType, QuantForm kForm>
void place_affine(std::span<const std::byte> blocks, std::int64_t first, int column, void* panel) {
  using Panel = AffinePanel<kForm>;
  static const BlockForm& form = *find_block_form(kId);
  constexpr DTypeBlock kBlock = dtype_block(kType);
  static_assert(kBlock.numbers == Panel::kBlocks * kQuantBlock);
  auto* unit = static_cast<std::byte*>(panel) + to_size(first / kBlock.numbers) * Panel::kBytes;
  BlockParts parts;
  for (std::size_t at = 0; at < blocks.size(); at += kBlock.bytes, unit += Panel::kBytes) {
    form.take_apart(blocks.data() + at, parts);
    for (int inner = 0; inner < Panel::kBlocks; ++inner) {
      place_quants<kForm>(parts.quants.data() + inner * kQuantBlock, inner, column, unit);
    }
    if constexpr (kForm.factors) {
      for (int group = 0; group < Panel::kBlocks * kForm.groups; ++group) {
        const int place = group * kLanes + column;
        std::memcpy(unit + Panel::kFactorsAt + place, &nth(parts.scales, group), 1);
        if constexpr (kForm.offsets) {
          std::memcpy(unit + Panel::kOffsetFactorsAt + place, &nth(parts.offsets, group), 1);
        }
      }
    }
    std::memcpy(unit + Panel::kScalesAt + 2 * column, &parts.scale, 2);
    if constexpr (kForm.offsets) {
      std::memcpy(unit + Panel::kOffsetsAt + 2 * column, &parts.offset, 2);
    }
  }
}

template <std::uint32_t kId, DType kType, QuantForm kForm>
constexpr BlockPlace affine() {
  return {AffinePanel<kForm>::kBytes / kLanes, place_affine<kId, kType, kForm>};
}

}  // namespace

// Eight bits are kept 128 more than they are.
constexpr BlockPlace kQ8Place{dtype_block(DType::kQ8).bytes, place_plain<DType::kQ8, 0x80>};
constexpr BlockPlace kQ4Place{dtype_block(DType::kQ4).bytes, place_plain<DType::kQ4, 0>};
constexpr BlockPlace kQ4_1Place = affine<3, DType::kQ4_1, kQ4_1Form>();
constexpr BlockPlace kQ5_0Place = affine<6, DType::kQ5_0, kQ5_0Form>();
constexpr BlockPlace kQ5_1Place = affine<7, DType::kQ5_1, kQ5_1Form>();
constexpr BlockPlace kQ2KPlace = affine<10, DType::kQ2K, kQ2KForm>();
constexpr BlockPlace kQ3KPlace = affine<11, DType::kQ3K, kQ3KForm>();
constexpr BlockPlace kQ4KPlace = affine<12, DType::kQ4K, kQ4KForm>();
constexpr BlockPlace kQ5KPlace = affine<13, DType::kQ5K, kQ5KForm>();
constexpr BlockPlace kQ6KPlace = affine<14, DType::kQ6K, kQ6KForm>();

}  // namespace tessera::cpu
