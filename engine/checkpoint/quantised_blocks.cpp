// bitsandbytes: rows of 8 bits with a largest size each; 4 bits a number that stand for 16 sizes,
// in blocks with a largest size each, which may be kept in 8 bits themselves.
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <vector>

#include "engine/checkpoint/container.h"
#include "engine/checkpoint/quantised_parts.h"
#include "engine/core/index.h"
#include "engine/core/json.h"
#include "engine/core/storage.h"

namespace tessera {

namespace {

constexpr std::size_t kStateBytes = 4096;
constexpr std::string_view kStates[] = {"weight.quant_state.bitsandbytes__nf4",
                                        "weight.quant_state.bitsandbytes__fp4"};
constexpr DType kF32Types[] = {DType::kF32};
constexpr DType kU8Types[] = {DType::kU8};

// Sizes of blocks that are kept in 8 bits.
struct NestedSizes {
  const std::uint8_t* codes = nullptr;
  const float* map = nullptr;    // [256]
  const float* sizes = nullptr;  // one a block of them
  std::int64_t block = 0;
  float offset = 0;
};

struct FourBits {
  std::int64_t count = 0, block = 0;  // numbers; of a block
  const std::uint8_t* codes = nullptr;
  const float* map = nullptr;    // [16]
  const float* sizes = nullptr;  // one a block; null where they are nested
  NestedSizes nested;
};

float size_of(const FourBits& from, std::int64_t block) {
  if (from.sizes != nullptr) return from.sizes[block];
  const NestedSizes& nested = from.nested;
  return nested.map[nested.codes[block]] * nested.sizes[block / nested.block] + nested.offset;
}

// The first of two numbers is in the high half of a byte.
void read_four_bits(const FourBits& from, float* out) {
  for (std::int64_t begin = 0; begin < from.count; begin += from.block) {
    const float size = size_of(from, begin / from.block);
    const std::int64_t end = std::min(begin + from.block, from.count);
    for (std::int64_t i = begin; i < end; ++i) {
      const std::uint8_t pair = from.codes[i / 2];
      out[i] = from.map[i % 2 == 0 ? pair >> 4 : pair & 15] * size;
    }
  }
}

std::int64_t blocks(std::int64_t count, std::int64_t block) { return (count + block - 1) / block; }

const float* floats(QuantisedParts& parts, std::string_view leaf, std::int64_t count) {
  const ConstTensorView view = parts.get(leaf, kF32Types);
  parts.want_shape(leaf, view, Shape{count});
  return view.f32();
}

// What is nested, where `state` says so.
NestedSizes read_nested(QuantisedParts& parts, const JsonReader& state, std::int64_t count) {
  NestedSizes out;
  out.block = state.integer("nested_blocksize", 1, 1 << 20);
  out.offset = to_float(state.number("nested_offset", -1e30, 1e30));
  constexpr std::array<std::string_view, 1> kTypes = {"float32"};
  state.choice("nested_dtype", kTypes);
  const ConstTensorView codes = parts.get("weight.absmax", kU8Types);
  parts.want_shape("weight.absmax", codes, Shape{count});
  out.codes = static_cast<const std::uint8_t*>(codes.data);
  out.map = floats(parts, "weight.nested_quant_map", 256);
  out.sizes = floats(parts, "weight.nested_absmax", blocks(count, out.block));
  return out;
}

Shape state_shape(QuantisedParts& parts, const JsonReader& state, std::int64_t bytes) {
  constexpr std::int64_t kMost = std::int64_t{1} << 31;
  const auto extents = state.integers("shape", 1, kMost - 1, 2);
  const Shape shape(extents);
  if (shape.rank() != 2 || blocks(shape.elements(), 2) != bytes) {
    parts.refuse("weight", "two codes a byte of a matrix " + shape.to_string(),
                 std::to_string(bytes) + " bytes");
  }
  return shape;
}

}  // namespace

QuantisedWeight read_bytes_row(QuantisedParts& parts) {
  const ConstTensorView codes = parts.matrix("weight", kByteTypes);
  const ConstTensorView sizes = parts.get("SCB", kF32Types);
  parts.want_shape("SCB", sizes, Shape{codes.shape[0]});
  constexpr std::string_view kFormat = "weight_format";
  if (parts.has(kFormat)) {
    const ConstTensorView format = parts.get(kFormat, kU8Types);
    if (format.shape.elements() != 1 || *static_cast<const std::uint8_t*>(format.data) != 0) {
      parts.refuse(kFormat, "0, rows as they are",
                   format.shape.elements() != 1
                       ? format.shape.to_string()
                       : std::to_string(*static_cast<const std::uint8_t*>(format.data)));
    }
  }
  QuantisedGrid grid{.rows = codes.shape[0], .columns = codes.shape[1]};
  grid.codes = {parts.name("weight"), codes, CodeOrder::kEach, 8, false};
  grid.cell_columns = grid.columns;
  grid.scales = sizes;
  grid.scales_name = parts.name("SCB");
  grid.factor = 7.874015718698502e-3f;  // 1 / 127
  return parts.weight(std::move(grid));
}

QuantisedWeight read_blocks(QuantisedParts& parts) {
  const std::string_view leaf = parts.has(kStates[0]) ? kStates[0] : kStates[1];
  const ConstTensorView stored = parts.get(leaf, kU8Types);
  if (stored.bytes() > kStateBytes) {
    parts.refuse(leaf, "at most " + std::to_string(kStateBytes) + " bytes",
                 std::to_string(stored.bytes()));
  }
  const std::string place = parts.file(leaf) + ": " + tensor_place(parts.name(leaf));
  const Json json = parse_json({static_cast<const char*>(stored.data), stored.bytes()}, place);
  if (!json.is_object()) parts.refuse(leaf, "a JSON object", json.type_name());
  const JsonReader state(json, place);
  constexpr std::array<std::string_view, 7> kKeys = {
      "quant_type",       "blocksize",    "dtype",        "shape",
      "nested_blocksize", "nested_dtype", "nested_offset"};
  state.only(kKeys);
  const std::array<std::string_view, 1> type = {leaf == kStates[0] ? "nf4" : "fp4"};
  state.choice("quant_type", type);
  constexpr std::array<std::string_view, 3> kTypes = {"float32", "bfloat16", "float16"};
  state.choice("dtype", kTypes);

  const ConstTensorView codes = parts.get("weight", {});
  FourBits out{.block = state.integer("blocksize", 1, 1 << 20)};
  const Shape shape = state_shape(parts, state, to_index(codes.bytes()));
  out.count = shape.elements();
  out.codes = static_cast<const std::uint8_t*>(codes.data);
  out.map = floats(parts, "weight.quant_map", 16);
  const std::int64_t count = blocks(out.count, out.block);
  const bool nested = state.has("nested_blocksize") || parts.has("weight.nested_absmax");
  std::string sizes = "weight.absmax";
  if (nested) {
    out.nested = read_nested(parts, state, count);
    sizes = "weight.nested_absmax";
  } else {
    out.sizes = floats(parts, sizes, count);
  }
  // Checked while it is read; views of other parts are as they were.
  const std::int64_t tables = nested ? blocks(count, out.nested.block) : count;
  const ConstTensorView scales{DType::kF32, Shape{tables}, nested ? out.nested.sizes : out.sizes,
                               Device{}};
  return parts.weight(
      shape, [out, scales, name = parts.name(sizes), file = parts.file("weight")](float* to) {
        check_scales(scales, name, file);
        read_four_bits(out, to);
      });
}

}  // namespace tessera
